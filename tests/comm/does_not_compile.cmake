# SPDX-License-Identifier: Apache-2.0
# Compiles does_not_compile.cpp with each mistake: it has to fail, for the right reason.
#   cmake -DCOMPILER=<c++> -DROOT=<tree> -P does_not_compile.cmake
function(compile case code_out text_out)
  execute_process(
    COMMAND ${COMPILER} -std=c++20 -fsyntax-only -Werror=unused-result -I${ROOT} -DCASE=${case}
            ${ROOT}/tests/comm/does_not_compile.cpp
    RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(${code_out} ${code} PARENT_SCOPE)
  set(${text_out} "${text}" PARENT_SCOPE)
endfunction()

compile(0 code text)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "what is right does not compile:\n${text}")
endif()
set(words_1 "Reducible")        # an element type that no reduction knows
set(words_2 "nodiscard|unused") # a Work that nobody waits for
set(words_3 "delete")           # two handles of one communicator
set(words_4 "Reducible|const")  # a result that cannot be written
foreach(case RANGE 1 4)
  compile(${case} code text)
  if(code EQUAL 0 OR NOT text MATCHES "${words_${case}}")
    message(FATAL_ERROR "case ${case} ended with ${code}, expected an error with "
                        "'${words_${case}}':\n${text}")
  endif()
endforeach()
