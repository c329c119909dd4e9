// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Checks of our own invariants. A failing one is a bug in paceline, so it names file and line.

#include <stdexcept>
#include <string>

namespace paceline {

/// A broken invariant of paceline itself: please report it.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] inline void raise_internal(const char* file,
                                        int line,
                                        const char* condition,
                                        const std::string& text) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) + ": " + condition + ": " +
                      text + " (a bug in paceline, please report it)");
}

}  // namespace paceline

#define PACELINE_ASSERT(condition, text) \
  ((condition) ? static_cast<void>(0)    \
               : ::paceline::raise_internal(__FILE__, __LINE__, #condition, text))
