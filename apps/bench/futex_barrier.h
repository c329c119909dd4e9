// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The least that a barrier over a sleeping wait can cost: one word, one futex.

#include <atomic>
#include <cstdint>

#include "apps/bench/exercise.h"
#include "paceline/net/futex.h"

namespace paceline::apps {

/// A barrier on one word that is 0 at first: its low bits count who has come, the others how often
/// all have.
///
/// Threads  Each participant has its own object on the same word.
class FutexBarrier {
 public:
  FutexBarrier(std::atomic<std::uint32_t>& word, int world, net::FutexScope scope) noexcept
      : word_(word), world_(static_cast<std::uint32_t>(world)), scope_(scope) {}

  /// Errors  std::runtime_error if nothing moves for a minute.
  void wait();

 private:
  static constexpr std::uint32_t kBits = 8;  ///< room for 255 participants

  std::atomic<std::uint32_t>& word_;
  std::uint32_t world_;
  net::FutexScope scope_;
};

/// Collective. All ranks meet on a word in memory that they share.
///
/// Errors  UsageError if they share none.
[[nodiscard]] Exercise make_futex_barrier(Communicator& comm, const BenchOptions& options);

}  // namespace paceline::apps
