// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Sleeping until one of several descriptors may move.

#include <cstddef>
#include <span>

#include "paceline/base/deadline.h"
#include "paceline/net/fd.h"

namespace paceline::net {

/// What a waiter wants of one descriptor, and what it got.
struct PollItem {
  const Fd* fd = nullptr;  ///< null or empty: never ready
  bool send = false;       ///< wanted: a write may move, or would fail
  bool recv = false;       ///< wanted: a read may move, or would report the end or a failure
  bool can_send = false;   ///< set by poll()
  bool can_recv = false;   ///< set by poll()
};

/// Sleeps until an item is ready or the deadline has passed; a passed deadline only looks.
/// @return how many items are ready; 0 at the deadline.
///
/// Errors  SystemError.
std::size_t poll(std::span<PollItem> items, Deadline deadline);

/// The same for one descriptor. @return whether it became ready.
[[nodiscard]] bool wait_readable(const Fd& fd, Deadline deadline);
[[nodiscard]] bool wait_writable(const Fd& fd, Deadline deadline);

}  // namespace paceline::net
