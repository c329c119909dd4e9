// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What a thread has used of a core.

#include <time.h>

#include <chrono>

namespace paceline {

inline std::chrono::nanoseconds thread_cpu_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace paceline
