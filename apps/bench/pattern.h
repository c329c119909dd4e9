// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the buffers of a bench hold: small whole numbers, so that every sum is exact in every type
/// and known in closed form.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "paceline/base/types.h"

namespace paceline::apps {

/// Elements of one type that repeat after three.
class Pattern {
 public:
  static constexpr std::size_t kPeriod = 3;
  using Numbers = std::array<std::uint64_t, kPeriod>;

  /// Element e is numbers[e mod 3] * factor^times; integers wrap.
  Pattern(Dtype dtype, const Numbers& numbers, int factor = 1, int times = 0);

  /// Writes elements first, first + 1, …
  void fill(std::span<std::byte> into, std::uint64_t first) const;
  /// The first byte that differs from what fill() would write.
  [[nodiscard]] std::optional<std::size_t> difference(std::span<const std::byte> data,
                                                      std::uint64_t first) const;

 private:
  [[nodiscard]] std::span<const std::byte> tile(std::uint64_t first, std::size_t most) const;

  std::size_t element_bytes_;
  std::vector<std::byte> tile_;  // one period longer than what is copied at a time
};

/// What `rank` holds: element e is 1 + (rank + e) mod 3.
[[nodiscard]] Pattern pattern_of_rank(Dtype dtype, int rank);

/// What every rank holds after `calls` sums in place over `world` ranks that began with
/// pattern_of_rank().
[[nodiscard]] Pattern pattern_of_sum(Dtype dtype, int world, int calls);

/// So many sums in place, up to `most`, give exact numbers, partial sums included.
[[nodiscard]] int exact_calls(Dtype dtype, int world, int most);

}  // namespace paceline::apps
