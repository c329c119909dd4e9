// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/reference.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "paceline/base/error.h"

namespace paceline::sim {
namespace {

template <typename T>
constexpr bool kIsNarrow = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
template <typename T>
using Sum = std::conditional_t<kIsNarrow<T>, float, T>;

template <typename T>
T read(const std::byte* data, std::uint64_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void write(std::byte* data, std::uint64_t i, T value) {
  std::memcpy(data + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
Sum<T> load(const Term& term, std::uint64_t i) {
  if constexpr (kIsNarrow<T>) {
    return term.form == Form::kT ? widen(read<T>(term.data, i)) : read<float>(term.data, i);
  } else {
    return read<T>(term.data, i);
  }
}

template <typename A>
A add(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    using Unsigned = std::make_unsigned_t<A>;
    return static_cast<A>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

/// The lesser of two values, or the greater: NaN wins, then -0 < +0.
template <typename A>
A extreme(A a, A b, ReduceOp op) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (a == b) return std::signbit(a) == (op == ReduceOp::kMin) ? a : b;
  }
  return (a < b) == (op == ReduceOp::kMin) ? a : b;
}

template <typename A>
A combine(A a, A b, ReduceOp op) {
  return op == ReduceOp::kSum || op == ReduceOp::kMean ? add(a, b) : extreme(a, b, op);
}

template <typename T>
T finish(Sum<T> sum, ReduceOp op, int world) {
  if constexpr (std::is_integral_v<T>) {
    return sum;
  } else {
    if (op == ReduceOp::kMean) sum /= static_cast<Sum<T>>(world);
    if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(sum);
    if constexpr (std::is_same_v<T, Float16>) return to_float16(sum);
    if constexpr (!kIsNarrow<T>) return std::isnan(sum) ? std::numeric_limits<T>::quiet_NaN() : sum;
  }
}

template <typename T>
void fold_all(
    ReduceOp op, int world, std::uint64_t count, std::span<const Term> terms, Target target) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Sum<T> sum = load<T>(terms[0], i);
    for (std::size_t k = 1; k < terms.size(); ++k) sum = combine(sum, load<T>(terms[k], i), op);
    if (target.form == Form::kT) {
      write(target.data, i, finish<T>(sum, op, world));
    } else {
      write(target.data, i, sum);
    }
  }
}

}  // namespace

float widen(BFloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

BFloat16 to_bfloat16(float value) noexcept {
  if (std::isnan(value)) return {0x7fc0};
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

float widen(Float16 value) noexcept {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = value.bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t rebiased = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | rebiased << 23 | mantissa << 13);
}

Float16 to_float16(float value) noexcept {
  if (std::isnan(value)) return {0x7e00};
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t rounded = 0;
  if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
    rounded = 0x7c00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24
    rounded = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(std::fabs(value), 24)));
  } else {
    const std::uint32_t rebiased = magnitude - (112U << 23);
    rounded = (rebiased + 0xfffU + ((rebiased >> 13) & 1)) >> 13;
  }
  return {static_cast<std::uint16_t>(sign | rounded)};
}

void reference_fold(Dtype dtype,
                    ReduceOp op,
                    int world,
                    std::uint64_t count,
                    std::span<const Term> terms,
                    Target target) {
  if (terms.empty()) throw UsageError("a fold needs at least one term");
  if (world < 1) throw UsageError("a fold needs a world of at least one rank");
  if (op == ReduceOp::kMean && !is_floating(dtype)) {
    throw UsageError("the mean of integers is undefined: use a sum");
  }
  if (terms.size() == 1 && terms[0].form == Form::kT && target.form == Form::kT) {
    if (count > 0) std::memmove(target.data, terms[0].data, count * size_of(dtype));
    return;
  }
  switch (dtype) {
    case Dtype::kF32: return fold_all<float>(op, world, count, terms, target);
    case Dtype::kF64: return fold_all<double>(op, world, count, terms, target);
    case Dtype::kF16: return fold_all<Float16>(op, world, count, terms, target);
    case Dtype::kBF16: return fold_all<BFloat16>(op, world, count, terms, target);
    case Dtype::kU8: return fold_all<std::uint8_t>(op, world, count, terms, target);
    case Dtype::kI32: return fold_all<std::int32_t>(op, world, count, terms, target);
    case Dtype::kI64: return fold_all<std::int64_t>(op, world, count, terms, target);
  }
}

}  // namespace paceline::sim
