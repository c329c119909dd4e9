// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Which sample comes when, and on which rank: index arithmetic and the shuffle, without LibTorch.

#include <array>
#include <cstdint>
#include <vector>

namespace paceline {

/// What happens to the samples that do not divide by the number of ranks.
enum class Tail : std::uint8_t {
  kPad,   ///< the order is repeated from its start until it divides
  kDrop,  ///< the last samples are left out
  kKeep   ///< nothing is added or left out: some ranks have one sample more
};

/// xoshiro256** (Blackman, Vigna 2018), its state filled by SplitMix64 from a 64-bit key.
class ShuffleGenerator {
 public:
  explicit ShuffleGenerator(std::uint64_t key) noexcept;
  [[nodiscard]] std::uint64_t next() noexcept;
  /// A number in [0, bound), bound > 0. The top bits of next(), as many as bound - 1 has, drawn
  /// again while they are not below `bound`: no number is preferred.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) noexcept;

 private:
  std::array<std::uint64_t, 4> state_;
};

/// The key of an epoch's shuffle: seed and epoch are hashed one after the other, so that (0, 1) and
/// (1, 0) differ.
[[nodiscard]] std::uint64_t shuffle_key(std::uint64_t seed, std::uint64_t epoch) noexcept;

/// A permutation of [0, size): Fisher-Yates from the last element down. The same on every platform.
[[nodiscard]] std::vector<std::uint64_t> shuffled_order(std::uint64_t size,
                                                        std::uint64_t seed,
                                                        std::uint64_t epoch);

/// One rank's way through the positions [base, size) of an epoch's order; base > 0 resumes it.
struct Pass {
  std::uint64_t size = 0;
  std::uint64_t base = 0;
  int rank = 0;
  int world = 1;
  Tail tail = Tail::kPad;

  /// Samples of all ranks together.
  [[nodiscard]] std::uint64_t total() const noexcept;
  /// Samples of this rank.
  [[nodiscard]] std::uint64_t count() const noexcept;
  /// Position in the epoch's order of this rank's sample k, k < count().
  [[nodiscard]] std::uint64_t position(std::uint64_t k) const noexcept;
  /// How much of the order all ranks have used up once each was asked for `samples` of its own.
  [[nodiscard]] std::uint64_t consumed(std::uint64_t samples) const noexcept;
};

}  // namespace paceline
