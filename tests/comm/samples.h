// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Inputs of collectives for tests, and what they mean as numbers. Conversions are written out here
/// so that they do not share code with what they check.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "paceline/base/types.h"

namespace paceline::test {

inline double value_of(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
inline double value_of(Float16 x) {
  const int exponent = (x.bits >> 10) & 31;
  const double fraction = x.bits & 1023;
  const double sign = (x.bits >> 15) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}
template <typename T>
requires std::is_arithmetic_v<T>
double value_of(T x) { return static_cast<double>(x); }

/// Half the distance between neighbours near 1.
template <typename T>
double unit_roundoff() {
  if constexpr (std::is_same_v<T, BFloat16>) return 1.0 / 256;
  if constexpr (std::is_same_v<T, Float16>) return 1.0 / 2048;
  if constexpr (std::is_same_v<T, float>) return std::ldexp(1.0, -24);
  return std::ldexp(1.0, -53);
}

/// Finite, of mixed sign and size; different on each rank, the same in each run.
template <typename T>
std::vector<T> sample(std::uint64_t seed, int rank, std::size_t count) {
  std::mt19937_64 random(seed * 1000003 + static_cast<std::uint64_t>(rank));
  std::vector<T> data(count);
  for (T& x : data) {
    const std::uint64_t r = random();
    if constexpr (std::is_integral_v<T>) {
      x = static_cast<T>(r);
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      x.bits = static_cast<std::uint16_t>(((r >> 8) & 0x807f) | ((120 + r % 12) << 7));
    } else if constexpr (std::is_same_v<T, Float16>) {
      x.bits = static_cast<std::uint16_t>(((r >> 8) & 0x83ff) | ((8 + r % 10) << 10));
    } else {
      const double unit = static_cast<double>(r >> 11) * 0x1p-53 - 0.5;
      x = static_cast<T>(std::ldexp(unit, static_cast<int>(r % 12)));
    }
  }
  return data;
}

}  // namespace paceline::test
