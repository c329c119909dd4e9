// SPDX-License-Identifier: Apache-2.0
// What ThreadSanitizer reports and is none: the count of an exception_ptr is atomic, but lies in
// the C++ library, which is not instrumented. Whoever lets go last ends the exception, be it the
// engine's thread after a waiter has read its text.

extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)

extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "race:std::__exception_ptr::exception_ptr::_M_release\n"
         "race:std::runtime_error::~runtime_error\n";
}
