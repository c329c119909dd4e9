# SPDX-License-Identifier: Apache-2.0
# One case of the package test, by -DCASE. Folders have a space in their name on purpose.
cmake_minimum_required(VERSION 3.25)
set(work "${BUILD}/package test")
set(prefix "${work}/prefix")
set(here "${SOURCE}/tests/package")
unset(ENV{PACELINE_LIBTORCH})   # a consumer names nothing but the prefix
set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${LAUNCHER}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed (${code}): ${ARGV}\n${out}")
  endif()
endfunction()

# configure(<source> <build folder> <arguments>...)
set(tools -G Ninja "-DCMAKE_CXX_COMPILER=${COMPILER}")
function(configure source folder)
  file(REMOVE_RECURSE "${work}/${folder}")
  run(${CMAKE_COMMAND} -S "${source}" -B "${work}/${folder}" ${tools} ${ARGN})
endfunction()

# consume(<build folder> <component>[,<component>] <arguments>...): configures, builds and runs what
# uses the components.
function(consume folder components)
  configure("${here}/consumer" "${folder}" -DCOMPONENTS=${components} ${ARGN})
  string(REPLACE "," ";" components "${components}")
  list(TRANSFORM components PREPEND use_ OUTPUT_VARIABLE programs)
  run(${CMAKE_COMMAND} --build "${work}/${folder}" --target ${programs})
  foreach(program IN LISTS programs)
    if(program STREQUAL "use_parallel")
      run("${prefix}/bin/paceline" run -n 2 -- "${work}/${folder}/${program}")
    else()
      run("${work}/${folder}/${program}")
    endif()
  endforeach()
endfunction()

# refused(<words> <arguments>...): the consumer does not configure, and the message has the words.
function(refused words)
  file(REMOVE_RECURSE "${work}/${CASE}")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S "${here}/consumer" -B "${work}/${CASE}" ${tools}
            "-DCMAKE_PREFIX_PATH=${prefix}" ${ARGN}
    RESULT_VARIABLE code ERROR_VARIABLE text OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  if(code EQUAL 0 OR NOT text MATCHES "${words}")
    message(FATAL_ERROR "expected a failure that says '${words}', got ${code}: ${text}")
  endif()
endfunction()

if(CASE STREQUAL "install")
  file(REMOVE_RECURSE "${prefix}")
  run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${prefix}")
elseif(CASE STREQUAL "headers_alone")
  string(REPLACE ";" "," components "${COMPONENTS}")
  string(REPLACE ";" "," headers "${PUBLIC_HEADERS}")
  configure("${here}/headers" headers "-DCMAKE_PREFIX_PATH=${prefix}"
            "-DCOMPONENTS=${components}" "-DPUBLIC_HEADERS=${headers}")
  run(${CMAKE_COMMAND} --build "${work}/headers")
elseif(CASE MATCHES "^find_(.*)")
  consume(${CASE} ${CMAKE_MATCH_1} "-DCMAKE_PREFIX_PATH=${prefix}")
  if(CASE STREQUAL "find_parallel")
    run("${prefix}/bin/paceline" compare -n 2 --model mlp --steps 1 --batch-size 4)
  endif()
elseif(CASE MATCHES "^subdirectory_(.*)")
  string(REPLACE "_" "," components "${CMAKE_MATCH_1}")
  # Each room as one, or it takes minutes; the dev preset compiles each file alone.
  consume(${CASE} ${components} "-DPACELINE_SOURCE=${SOURCE}" -DCMAKE_UNITY_BUILD=ON)
elseif(CASE STREQUAL "missing_component")
  refused("no component rocket" -DCOMPONENTS=rocket)
elseif(CASE STREQUAL "missing_dependency")
  refused("apt-get install libfmt-dev" -DCOMPONENTS=core -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON)
elseif(CASE STREQUAL "shared_libraries")
  configure("${SOURCE}" shared -DBUILD_SHARED_LIBS=ON -DPACELINE_TORCH=OFF -DPACELINE_TESTS=OFF
            -DPACELINE_BENCH=OFF -DPACELINE_EXAMPLES=OFF "-DCMAKE_INSTALL_PREFIX=${work}/shared prefix")
  run(${CMAKE_COMMAND} --build "${work}/shared" --target install)
  consume(find_shared core "-DCMAKE_PREFIX_PATH=${work}/shared prefix")
else()
  message(FATAL_ERROR "unknown case '${CASE}'")
endif()
