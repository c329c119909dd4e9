// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where one rank's thread sleeps until a peer has moved something.

#include <atomic>
#include <cstdint>

#include "paceline/base/deadline.h"
#include "paceline/link/memory/byte_ring.h"
#include "paceline/net/futex.h"

namespace paceline::link {

/// Ringing costs one load while the owner is awake. See ByteRing for why no ring is lost: publish
/// with a sequentially consistent store, then ring.
///
/// Threads  ring() and wake(): any. sleep_until(): the owner's.
class Doorbell {
 public:
  /// Ends the owner's sleep, if it sleeps, so that it looks again.
  void ring() noexcept {
    if (state_.load(std::memory_order_seq_cst) == kAsleep) end_sleep();
  }

  /// Ends the current or the next sleep_until().
  void wake() noexcept {
    woken_.store(true, std::memory_order_seq_cst);
    ring();
  }

  /// Sleeps until `ready()` is true, after a ring, or wake() was called, or the deadline has
  /// passed.
  template <class Ready>
  void sleep_until(const Ready& ready, Deadline deadline) {
    bool in_time = true;
    while (!take_wake() && !ready() && in_time) {
      state_.store(kAsleep, std::memory_order_seq_cst);
      if (!woken_.load(std::memory_order_seq_cst) && !ready())
        in_time = net::futex_wait(state_, kAsleep, deadline);
      state_.store(kAwake, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::uint32_t kAwake = 0;
  static constexpr std::uint32_t kAsleep = 1;

  void end_sleep() noexcept {
    if (state_.exchange(kAwake, std::memory_order_seq_cst) == kAsleep) net::futex_wake_all(state_);
  }
  bool take_wake() noexcept {
    return woken_.load(std::memory_order_relaxed) &&
           woken_.exchange(false, std::memory_order_seq_cst);
  }

  alignas(kLine) std::atomic<std::uint32_t> state_{kAwake};
  std::atomic<bool> woken_{false};
};

}  // namespace paceline::link
