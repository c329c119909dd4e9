// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Inputs for tests: seeded values of every type, and slices of them as the collectives want.

#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "paceline/plan/schedule.h"
#include "paceline/sim/execute.h"
#include "paceline/sim/random.h"
#include "paceline/sim/reference.h"

namespace paceline::sim {

using Bytes = std::vector<std::byte>;

inline constexpr Dtype kAllDtypes[] = {Dtype::kF32, Dtype::kF64, Dtype::kF16, Dtype::kBF16,
                                       Dtype::kU8,  Dtype::kI32, Dtype::kI64};

/// Floats of many magnitudes and both signs; integers of the whole range, so that sums wrap.
template <Reducible T>
T random_value(Random& random) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random.next());
  } else {
    const auto thousandths = static_cast<double>(random.below(2'000'001)) - 1'000'000;
    const double value = std::ldexp(thousandths / 1000, static_cast<int>(random.below(9)) - 6);
    if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(static_cast<float>(value));
    if constexpr (std::is_same_v<T, Float16>) return to_float16(static_cast<float>(value));
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  }
}

/// One full buffer per rank.
template <Reducible T>
std::vector<std::vector<T>> random_inputs(int world, std::uint64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<T>> inputs(static_cast<std::size_t>(world), std::vector<T>(count));
  for (auto& input : inputs) {
    for (T& value : input) value = random_value<T>(random);
  }
  return inputs;
}

template <typename T>
Bytes to_bytes(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <Reducible T>
std::vector<Bytes> random_bytes(int world, std::uint64_t count, std::uint64_t seed) {
  std::vector<Bytes> inputs;
  for (const auto& values : random_inputs<T>(world, count, seed))
    inputs.push_back(to_bytes(values));
  return inputs;
}

inline std::vector<Bytes> random_inputs(Dtype dtype,
                                        int world,
                                        std::uint64_t count,
                                        std::uint64_t seed) {
  switch (dtype) {
    case Dtype::kF32: return random_bytes<float>(world, count, seed);
    case Dtype::kF64: return random_bytes<double>(world, count, seed);
    case Dtype::kF16: return random_bytes<Float16>(world, count, seed);
    case Dtype::kBF16: return random_bytes<BFloat16>(world, count, seed);
    case Dtype::kU8: return random_bytes<std::uint8_t>(world, count, seed);
    case Dtype::kI32: return random_bytes<std::int32_t>(world, count, seed);
    case Dtype::kI64: return random_bytes<std::int64_t>(world, count, seed);
  }
  return {};
}

/// The part of a rank's full buffer that its schedule reads.
inline std::span<const std::byte> slice(const Bytes& full, Range range, Dtype dtype) {
  const std::size_t bytes = size_of(dtype);
  return std::span(full).subspan(range.begin * bytes, range.size() * bytes);
}

}  // namespace paceline::sim
