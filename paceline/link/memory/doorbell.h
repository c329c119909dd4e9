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
/// with a sequentially consistent store, then ring. All zero at first, so that a bell of scope
/// kShared may lie in fresh shared memory.
///
/// Threads  ring() and is_asleep(): any. wake(): the owner's process. sleep_until(): the owner's
///          thread.
template <net::FutexScope scope>
class BasicDoorbell {
 public:
  /// Whether the owner sleeps, or is about to and will look once more.
  [[nodiscard]] bool is_asleep() const noexcept {
    return state_.load(std::memory_order_seq_cst) == kAsleep;
  }

  /// Ends the owner's sleep, if it sleeps, so that it looks again.
  void ring() noexcept {
    if (is_asleep()) end_sleep();
  }

  /// Ends the current or the next sleep_until().
  void wake() noexcept {
    woken_.store(true, std::memory_order_seq_cst);
    ring();
  }

  /// Sleeps until `ready()` is true, after a ring, or wake() was called, or the deadline has
  /// passed. @return false if only the deadline ended it.
  template <class Ready>
  bool sleep_until(const Ready& ready, Deadline deadline) {
    bool in_time = true;
    for (;;) {
      if (take_wake() || ready()) return true;
      if (!in_time) return false;
      state_.store(kAsleep, std::memory_order_seq_cst);
      if (!woken_.load(std::memory_order_seq_cst) && !ready())
        in_time = net::futex_wait(state_, kAsleep, deadline, scope);
      state_.store(kAwake, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::uint32_t kAwake = 0;
  static constexpr std::uint32_t kAsleep = 1;

  void end_sleep() noexcept {
    if (state_.exchange(kAwake, std::memory_order_seq_cst) == kAsleep)
      net::futex_wake_all(state_, scope);
  }
  bool take_wake() noexcept {
    return woken_.load(std::memory_order_relaxed) &&
           woken_.exchange(false, std::memory_order_seq_cst);
  }

  alignas(kLine) std::atomic<std::uint32_t> state_{kAwake};
  std::atomic<bool> woken_{false};
};

using Doorbell = BasicDoorbell<net::FutexScope::kPrivate>;
using SharedDoorbell = BasicDoorbell<net::FutexScope::kShared>;

}  // namespace paceline::link
