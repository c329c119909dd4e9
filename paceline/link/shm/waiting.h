// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How ranks say how far they have come, and sleep until others have, in memory that they share.
///
/// A rank posts by a store to a counter that only it writes. A sleeper writes its wish (which
/// stage, which value, of which ranks; and whether bytes matter), announces itself (asleep = 1),
/// looks once more at all that it waits for, and sleeps on that word. A poster stores its counter,
/// looks whether the other sleeps, and then wakes it only if, by that wish, all ranks have posted:
/// the last of N ranks wakes, not each of them.
///
/// No wake is lost. The counters' stores, the announcement, and the looks of both sides are
/// sequentially consistent, so there is one order S of them. Of the stores that fulfil the wish of
/// sleeper s, one per rank, let p's be the last in S.
/// 1. p sees s awake. Then p's look comes before s's announcement in S, and all those stores come
///    before p's look: the last look of s, after its announcement, sees them. It does not sleep.
/// 2. p sees s asleep, and reads the wish of that announcement. It sees all those stores too, as
///    they come before its own, and wakes s.
/// 3. p sees s asleep, but reads some part of a later wish, or of none: s has been awake since. The
///    later announcement follows the one that p saw in the word's modification order, so it comes
///    after p's look in S: as in 1, the last look of s sees all, whatever p decides.
/// Bytes are the same with one rank that stores. A rank that closes wakes whoever it sees asleep.
/// The futex closes the last gap: the kernel compares the word when it puts s to sleep, and p
/// changes it before it wakes. tests/link/wake_protocol_test.cpp walks through every interleaving.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "paceline/link/link.h"
#include "paceline/link/memory/doorbell.h"

namespace paceline::link {

inline constexpr int kMostShmRanks = 1024;

/// What a sleeper waits for. Written by its owner, while it is awake; read by posters.
struct Wish {
  static constexpr std::uint32_t kBytes = 1;      ///< bit: wake for bytes
  static constexpr std::uint32_t kStageUnit = 2;  ///< times (1 + the stage of the posts)
  static constexpr std::uint32_t kAnyPost = kStageUnit * (1 + Windows::kStages);

  std::atomic<std::uint32_t> kind{0};
  std::atomic<std::uint64_t> value{0};
  std::array<std::atomic<std::uint64_t>, kMostShmRanks / 64> ranks{};
};

/// One rank's words; all zero at first. Each line has one writer, but for the bell.
struct WaitWords {
  struct Counter {
    alignas(kLine) std::atomic<std::uint64_t> value{0};
  };
  std::array<Counter, Windows::kStages> posted;
  SharedDoorbell bell;
  alignas(kLine) Wish wish;
};

/// One rank's view of all ranks' words.
///
/// Threads  One at a time, except wake() and ring(), which are any thread's.
class Waiting {
 public:
  /// `words` by rank; they outlive this.
  Waiting(int rank, std::vector<WaitWords*> words) : rank_(rank), words_(std::move(words)) {}

  void post(int stage, std::uint64_t value) noexcept;
  [[nodiscard]] std::uint64_t posted(int rank, int stage) const noexcept {
    return counter(rank, stage).load(std::memory_order_acquire);
  }
  /// The same for a last look before sleeping.
  [[nodiscard]] bool has_posted(const Interest& interest) const noexcept {
    return counter(interest.peer, interest.stage).load(std::memory_order_seq_cst) >= interest.post;
  }

  /// Wakes `rank` whatever it waits for.
  void ring(int rank) noexcept { at(rank).bell.ring(); }
  /// Wakes `rank` if it waits for bytes.
  void ring_for_bytes(int rank) noexcept;
  /// Ends the own current or next sleep.
  void wake() noexcept { at(rank_).bell.wake(); }

  /// Sleeps until `ready()`, which looks at `interests`, wake(), or the deadline.
  /// @return false if only the deadline ended it.
  template <class Ready>
  bool sleep_until(std::span<const Interest> interests, const Ready& ready, Deadline deadline) {
    write_wish(interests);
    return at(rank_).bell.sleep_until(ready, deadline);
  }

 private:
  [[nodiscard]] WaitWords& at(int rank) const noexcept {
    return *words_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::atomic<std::uint64_t>& counter(int rank, int stage) const noexcept {
    return at(rank).posted[static_cast<std::size_t>(stage)].value;
  }
  void write_wish(std::span<const Interest> interests) noexcept;
  [[nodiscard]] bool grants(const Wish& wish, int stage) const noexcept;
  [[nodiscard]] bool all_have_posted(const Wish& wish, int stage) const noexcept;

  const int rank_;
  const std::vector<WaitWords*> words_;
};

}  // namespace paceline::link
