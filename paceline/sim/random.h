// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A small seeded generator (splitmix64): the same numbers on every platform, and quick to start.

#include <cstdint>

namespace paceline::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// In [0, bound); 0 if `bound` is 0.
  std::uint64_t below(std::uint64_t bound) noexcept { return bound == 0 ? 0 : next() % bound; }
  bool flip() noexcept { return (next() & 1) != 0; }

 private:
  std::uint64_t state_;
};

}  // namespace paceline::sim
