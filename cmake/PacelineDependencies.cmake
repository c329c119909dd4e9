# SPDX-License-Identifier: Apache-2.0
# paceline_require(<CMake package> <Debian package> [version and other arguments of find_package])
# Finds it or stops with one sentence that says what to install.
macro(paceline_require package debian)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "paceline needs ${package}, which was not found. On Debian: apt-get install ${debian}. "
      "Elsewhere: install it, and name its prefix with CMAKE_PREFIX_PATH. `make setup` installs all.")
  endif()
endmacro()
