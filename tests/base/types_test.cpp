// SPDX-License-Identifier: Apache-2.0
#include "paceline/base/types.h"

#include <gtest/gtest.h>

#include "paceline/base/checked_cast.h"
#include "paceline/base/deadline.h"

namespace paceline {
namespace {

TEST(Types, sums_of_16_bit_floats_are_held_in_f32) {
  EXPECT_EQ(accumulation_type(Dtype::kBF16), Dtype::kF32);
  EXPECT_EQ(accumulation_type(Dtype::kF16), Dtype::kF32);
  EXPECT_EQ(accumulation_type(Dtype::kI64), Dtype::kI64);
  EXPECT_EQ(size_of(Dtype::kBF16, Form::kT), 2U);
  EXPECT_EQ(size_of(Dtype::kBF16, Form::kSum), 4U);
}

TEST(Types, names_are_those_of_messages_and_options) {
  EXPECT_EQ(name_of(Dtype::kBF16), "bf16");
  EXPECT_EQ(name_of(ReduceOp::kMean), "mean");
  EXPECT_EQ(name_of(Collective::kReduceScatter), "reduce_scatter");
  EXPECT_EQ(name_of(Algorithm::kOneStage), "one_stage");
  EXPECT_EQ(name_of(static_cast<Algorithm>(99)), "unknown");
}

TEST(CheckedCast, refuses_a_value_that_does_not_fit) {
  EXPECT_EQ(checked_cast<std::uint8_t>(255), 255);
  EXPECT_THROW((void)checked_cast<std::uint8_t>(256), UsageError);
  EXPECT_THROW((void)checked_cast<std::uint64_t>(-1), UsageError);
}

TEST(Deadline, saturates_instead_of_overflowing) {
  EXPECT_TRUE(Deadline::after(std::chrono::nanoseconds::max()).left() > std::chrono::hours(24));
  EXPECT_TRUE(Deadline::after(std::chrono::seconds(-1)).passed());
  EXPECT_FALSE(Deadline::never().passed());
}

}  // namespace
}  // namespace paceline
