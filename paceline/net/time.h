// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Durations as the kernel wants them. Private to net/.

#include <chrono>
#include <ctime>

#include "paceline/base/deadline.h"

namespace paceline::net {

inline timespec to_timespec(std::chrono::nanoseconds duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  timespec result{};
  result.tv_sec = static_cast<std::time_t>(seconds.count());
  result.tv_nsec = static_cast<long>((duration - seconds).count());
  return result;
}

}  // namespace paceline::net
