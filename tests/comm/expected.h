// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What collectives must give, from plain loops, and how exact it must be.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "paceline/base/types.h"
#include "tests/comm/samples.h"

namespace paceline::test {

inline std::vector<std::size_t> counts_for(int world) {
  const auto n = static_cast<std::size_t>(world);
  return {0, 1, n - 1, n, n + 1, 1000, 4099};
}

template <typename T>
std::string bits_of(const std::vector<T>& data) {
  return {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T)};
}

// What the sum over ranks of element e is, and how far a correct sum may be from it: N - 1
// additions (and a division) in the accumulation type, one rounding to T.
struct Exact {
  double value = 0;
  double bound = 0;
};

template <typename T>
Exact exact_sum(const std::vector<std::vector<T>>& in, std::size_t e, bool mean) {
  using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
  double value = 0, magnitude = 0;
  for (const auto& rank : in) {
    value += value_of(rank[e]);
    magnitude += std::fabs(value_of(rank[e]));
  }
  const auto n = static_cast<double>(in.size());
  const double scale = mean ? n : 1;
  const double sums = (n + 1) * unit_roundoff<Sum>() * magnitude * 1.01;
  const double rounding = sizeof(T) == 2 ? std::fabs(value) * unit_roundoff<T>() * 1.01 : 0;
  return {value / scale, (sums + rounding) / scale};
}

template <typename T>
void check_element(const std::vector<std::vector<T>>& in, std::size_t e, ReduceOp op, T got) {
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    double want = value_of(in[0][e]);
    for (const auto& rank : in) {
      want = op == ReduceOp::kMin ? std::min(want, value_of(rank[e]))
                                  : std::max(want, value_of(rank[e]));
    }
    ASSERT_EQ(value_of(got), want);
  } else if constexpr (std::is_integral_v<T>) {
    std::uint64_t want = 0;  // wraps
    for (const auto& rank : in) want += static_cast<std::uint64_t>(rank[e]);
    ASSERT_EQ(got, static_cast<T>(want));
  } else {
    const Exact want = exact_sum(in, e, op == ReduceOp::kMean);
    ASSERT_NEAR(value_of(got), want.value, want.bound);
  }
}

template <typename T>
std::vector<std::vector<T>> inputs(int world, std::size_t count) {
  std::vector<std::vector<T>> in;
  for (int rank = 0; rank < world; ++rank) in.push_back(sample<T>(count, rank, count));
  return in;
}

// Results of all ranks; each thread writes its own entry.
template <typename T>
using PerRank = std::vector<std::vector<T>>;

}  // namespace paceline::test
