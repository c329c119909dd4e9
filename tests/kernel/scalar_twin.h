// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// fold() once more, one element at a time and in plain arithmetic: what every SIMD target must
/// equal, bit for bit. Rounding here works on values, not on bit patterns, to share no mistake.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "paceline/kernel/element.h"
#include "paceline/kernel/fold.h"

namespace paceline::kernel::twin {

/// A 16-bit float format: bits of precision with the hidden one, exponents of normal numbers.
struct Format {
  int precision;
  int min_exponent;
  int max_exponent;
};
template <typename T>
inline constexpr Format kFormat =
    std::is_same_v<T, Float16> ? Format{11, -14, 15} : Format{8, -126, 127};

/// Exact; NaN keeps its sign and its payload, in the top bits.
template <typename T>
float widen(T half) {
  constexpr Format f = kFormat<T>;
  constexpr int fraction_bits = f.precision - 1;
  const bool negative = (half.bits & 0x8000U) != 0;
  const int fraction = half.bits & ((1 << fraction_bits) - 1);
  const int biased = (half.bits & 0x7fff) >> fraction_bits;
  if (biased == f.max_exponent * 2 + 1) {
    const std::uint32_t payload = static_cast<std::uint32_t>(fraction) << (23 - fraction_bits);
    return std::bit_cast<float>((negative ? 0xff800000U : 0x7f800000U) | payload);
  }
  const int significand = biased == 0 ? fraction : fraction + (1 << fraction_bits);
  const int exponent = (biased == 0 ? 1 : biased) - f.max_exponent - fraction_bits;
  const float value = std::ldexp(static_cast<float>(significand), exponent);
  return negative ? -value : value;
}

/// To nearest, ties to even; NaN becomes canonical.
template <typename T>
T narrow(float value) {
  constexpr Format f = kFormat<T>;
  constexpr int fraction_bits = f.precision - 1;
  constexpr auto one = static_cast<std::uint32_t>(1U << fraction_bits);
  constexpr std::uint32_t infinity = static_cast<std::uint32_t>(f.max_exponent * 2 + 1) * one;
  if (std::isnan(value)) return T{static_cast<std::uint16_t>(infinity | (one >> 1))};
  const auto sign = static_cast<std::uint32_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return T{static_cast<std::uint16_t>(sign)};
  if (std::isinf(value)) return T{static_cast<std::uint16_t>(sign | infinity)};
  const int exponent = std::max(std::ilogb(magnitude), f.min_exponent);
  const double steps = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
  const auto below = static_cast<std::uint32_t>(exponent - f.min_exponent) * one;
  // A significand that rounded up to the next power of two carries into the exponent by itself.
  const std::uint32_t bits = below + static_cast<std::uint32_t>(steps);
  return T{static_cast<std::uint16_t>(sign | std::min(bits, infinity))};
}

template <typename A>
A canonical(A value) {
  if constexpr (std::is_same_v<A, float>) {
    return std::isnan(value) ? std::bit_cast<float>(0x7fc00000U) : value;
  } else if constexpr (std::is_same_v<A, double>) {
    return std::isnan(value) ? std::bit_cast<double>(std::uint64_t{0x7ff8000000000000U}) : value;
  } else {
    return value;
  }
}

template <typename A>
A minimum(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (a == b) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}

template <typename A>
A maximum(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

template <typename A>
A combine(ReduceOp op, A a, A b) {
  if (op == ReduceOp::kMin) return minimum(a, b);
  if (op == ReduceOp::kMax) return maximum(a, b);
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
Accumulator<T> load(const Term& term, std::uint64_t i) {
  if constexpr (kIsHalf<T>) {
    if (term.form == Form::kT) return widen(read<T>(term.data + i * sizeof(T)));
  }
  return read<Accumulator<T>>(term.data + i * sizeof(Accumulator<T>));
}

template <typename T>
void store(Accumulator<T> value, Target target, std::uint64_t i) {
  if constexpr (kIsHalf<T>) {
    if (target.form == Form::kT) {
      const T half = narrow<T>(value);
      std::memcpy(target.data + i * sizeof(T), &half, sizeof(T));
      return;
    }
  }
  std::memcpy(target.data + i * sizeof(value), &value, sizeof(value));
}

template <typename T>
void fold_element(
    ReduceOp op, int world, std::uint64_t i, std::span<const Term> terms, Target target) {
  using A = Accumulator<T>;
  A sum = load<T>(terms[0], i);
  for (const Term& term : terms.subspan(1)) sum = combine(op, sum, load<T>(term, i));
  const bool finished =
      target.form == Form::kT && (terms.size() > 1 || terms[0].form == Form::kSum);
  if constexpr (std::is_floating_point_v<A>) {
    if (finished && op == ReduceOp::kMean) sum = sum / static_cast<A>(world);
  }
  store<T>(finished || terms.size() > 1 ? canonical(sum) : sum, target, i);
}

template <typename T>
void fold_as(
    ReduceOp op, int world, std::uint64_t count, std::span<const Term> terms, Target target) {
  if (terms.size() == 1 && terms[0].form == target.form) {
    const std::size_t size = target.form == Form::kT ? sizeof(T) : sizeof(Accumulator<T>);
    std::memmove(target.data, terms[0].data, count * size);
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) fold_element<T>(op, world, i, terms, target);
}

inline void fold(Dtype dtype,
                 ReduceOp op,
                 int world,
                 std::uint64_t count,
                 std::span<const Term> terms,
                 Target target) {
  switch (dtype) {
    case Dtype::kF32: return fold_as<float>(op, world, count, terms, target);
    case Dtype::kF64: return fold_as<double>(op, world, count, terms, target);
    case Dtype::kF16: return fold_as<Float16>(op, world, count, terms, target);
    case Dtype::kBF16: return fold_as<BFloat16>(op, world, count, terms, target);
    case Dtype::kU8: return fold_as<std::uint8_t>(op, world, count, terms, target);
    case Dtype::kI32: return fold_as<std::int32_t>(op, world, count, terms, target);
    case Dtype::kI64: return fold_as<std::int64_t>(op, world, count, terms, target);
  }
}

}  // namespace paceline::kernel::twin
