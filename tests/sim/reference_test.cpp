// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/sim/execute.h"

namespace paceline::sim {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// One element from each of `terms`.
template <typename T>
T fold(ReduceOp op, std::vector<T> values, int world = 2) {
  std::vector<Term> terms;
  for (const T& value : values) {
    terms.push_back({reinterpret_cast<const std::byte*>(&value), Form::kT});
  }
  T result{};
  reference_fold(dtype_of<T>(), op, world, 1, terms,
                 {reinterpret_cast<std::byte*>(&result), Form::kT});
  return result;
}

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(Bfloat16, survives_the_round_trip_for_every_pattern) {
  for (std::uint32_t b = 0; b <= 0xffff; ++b) {
    const BFloat16 value{static_cast<std::uint16_t>(b)};
    if (std::isnan(widen(value))) {
      EXPECT_EQ(to_bfloat16(widen(value)).bits, 0x7fc0);
    } else {
      EXPECT_EQ(to_bfloat16(widen(value)), value);
    }
  }
}

TEST(Float16, survives_the_round_trip_for_every_pattern) {
  for (std::uint32_t b = 0; b <= 0xffff; ++b) {
    const Float16 value{static_cast<std::uint16_t>(b)};
    if (std::isnan(widen(value))) {
      EXPECT_EQ(to_float16(widen(value)).bits, 0x7e00);
    } else {
      EXPECT_EQ(to_float16(widen(value)), value);
    }
  }
}

// Midway between two neighbours the even one wins; a hair to either side, the nearer one.
template <typename T, typename Round>
void expect_ties_to_even(std::uint16_t largest_finite, Round round) {
  for (std::uint32_t b = 0; b < largest_finite; ++b) {
    const T low{static_cast<std::uint16_t>(b)};
    const T high{static_cast<std::uint16_t>(b + 1)};
    const float middle = std::ldexp(widen(low), -1) + std::ldexp(widen(high), -1);
    if (std::ldexp(middle, 1) != widen(low) + widen(high)) continue;  // not a float
    EXPECT_EQ(round(middle), b % 2 == 0 ? low : high) << b;
    EXPECT_EQ(round(std::nextafter(middle, 0.0F)), low) << b;
    EXPECT_EQ(round(std::nextafter(middle, kInf)), high) << b;
    EXPECT_EQ(round(-middle).bits, round(middle).bits | 0x8000U) << b;
  }
}

TEST(Bfloat16, rounds_ties_to_even) {
  expect_ties_to_even<BFloat16>(0x7f7f, [](float x) { return to_bfloat16(x); });
}

TEST(Float16, rounds_ties_to_even_and_subnormals_too) {
  expect_ties_to_even<Float16>(0x7bff, [](float x) { return to_float16(x); });
}

TEST(Float16, overflows_to_infinity_from_65520_on) {
  EXPECT_EQ(to_float16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(to_float16(-kInf).bits, 0xfc00);
  EXPECT_EQ(to_float16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(ReferenceFold, adds_left_to_right) {
  EXPECT_EQ(fold<float>(ReduceOp::kSum, {1e8F, 1.0F, -1e8F}), 0.0F);
  EXPECT_EQ(fold<float>(ReduceOp::kSum, {1e8F, -1e8F, 1.0F}), 1.0F);
}

TEST(ReferenceFold, divides_the_mean_once_by_the_world) {
  EXPECT_EQ(fold<float>(ReduceOp::kMean, {1.0F, 2.0F}, 49), 3.0F / 49.0F);
  EXPECT_EQ(fold<double>(ReduceOp::kMean, {1.0, 2.0}, 7), 3.0 / 7.0);
}

TEST(ReferenceFold, lets_nan_win_and_makes_it_canonical) {
  const float odd_nan = std::bit_cast<float>(0xffc12345U);
  for (auto op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_EQ(bits(fold<float>(op, {odd_nan, 1.0F})), 0x7fc00000U);
    EXPECT_EQ(bits(fold<float>(op, {1.0F, odd_nan})), 0x7fc00000U);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(fold<double>(op, {std::nan("7"), 1.0})),
              0x7ff8000000000000U);
    EXPECT_EQ(fold<BFloat16>(op, {{0xffc1}, {0x3f80}}).bits, 0x7fc0);
    EXPECT_EQ(fold<Float16>(op, {{0x3c00}, {0xfe01}}).bits, 0x7e00);
  }
  EXPECT_EQ(bits(fold<float>(ReduceOp::kSum, {kInf, -kInf})), 0x7fc00000U);
}

TEST(ReferenceFold, orders_signed_zeros_in_min_and_max) {
  EXPECT_TRUE(std::signbit(fold<float>(ReduceOp::kMin, {0.0F, -0.0F})));
  EXPECT_TRUE(std::signbit(fold<float>(ReduceOp::kMin, {-0.0F, 0.0F})));
  EXPECT_FALSE(std::signbit(fold<float>(ReduceOp::kMax, {0.0F, -0.0F})));
  EXPECT_FALSE(std::signbit(fold<float>(ReduceOp::kMax, {-0.0F, 0.0F})));
}

TEST(ReferenceFold, wraps_sums_of_integers) {
  EXPECT_EQ(fold<std::uint8_t>(ReduceOp::kSum, {200, 100}), 44);
  EXPECT_EQ(fold<std::int32_t>(ReduceOp::kSum, {std::numeric_limits<int>::max(), 1}),
            std::numeric_limits<int>::min());
  EXPECT_EQ(fold<std::int64_t>(ReduceOp::kMin, {-5, 3}), -5);
  EXPECT_EQ(fold<std::int64_t>(ReduceOp::kMax, {-5, 3}), 3);
}

TEST(ReferenceFold, copies_a_single_term_bit_for_bit) {
  const float odd_nan = std::bit_cast<float>(0xffc12345U);
  EXPECT_EQ(bits(fold<float>(ReduceOp::kMean, {odd_nan}, 4)), 0xffc12345U);
  EXPECT_EQ(fold<BFloat16>(ReduceOp::kMean, {{0xff81}}, 4).bits, 0xff81);
}

TEST(ReferenceFold, leaves_a_partial_sum_unfinished_and_finishes_it_later) {
  const BFloat16 one{0x3f80};
  const BFloat16 small{0x3b00};  // 2^-9: lost if the sum were rounded to 8 bits here
  const Term terms[] = {{reinterpret_cast<const std::byte*>(&one), Form::kT},
                        {reinterpret_cast<const std::byte*>(&small), Form::kT}};
  float sum = 0;
  reference_fold(Dtype::kBF16, ReduceOp::kMean, 2, 1, terms,
                 {reinterpret_cast<std::byte*>(&sum), Form::kSum});
  EXPECT_EQ(sum, 1.0F + std::ldexp(1.0F, -9));
  BFloat16 mean;
  const Term partial[] = {{reinterpret_cast<const std::byte*>(&sum), Form::kSum}};
  reference_fold(Dtype::kBF16, ReduceOp::kMean, 2, 1, partial,
                 {reinterpret_cast<std::byte*>(&mean), Form::kT});
  EXPECT_EQ(mean, to_bfloat16(sum / 2));
}

TEST(ReferenceFold, refuses_no_terms_no_ranks_and_the_mean_of_integers) {
  EXPECT_THROW(fold<float>(ReduceOp::kSum, {}), UsageError);
  EXPECT_THROW(fold<float>(ReduceOp::kSum, {1.0F}, 0), UsageError);
  EXPECT_THROW(fold<std::int32_t>(ReduceOp::kMean, {1, 2}), UsageError);
  EXPECT_NO_THROW(fold<float>(ReduceOp::kMin, {kNan, kNan}));
}

}  // namespace
}  // namespace paceline::sim
