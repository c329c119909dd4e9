// SPDX-License-Identifier: Apache-2.0
#include "paceline/base/deadline.h"

#include <gtest/gtest.h>

namespace paceline {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(Deadline, of_the_longest_duration_never_passes) {
  EXPECT_TRUE(Deadline::after(milliseconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(nanoseconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::hours::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::duration<double>(1e300)).is_never());
  EXPECT_FALSE(Deadline::after(milliseconds::max()).passed());
}

TEST(Deadline, of_a_negative_duration_has_passed) {
  EXPECT_TRUE(Deadline::after(milliseconds(-1)).passed());
  EXPECT_TRUE(Deadline::after(milliseconds::min()).passed());
  EXPECT_TRUE(Deadline::after(milliseconds(0)).passed());
}

TEST(Deadline, lies_as_far_away_as_it_was_told) {
  const auto before = Clock::now();
  const Deadline deadline = Deadline::after(std::chrono::hours(24 * 365 * 200));
  EXPECT_GE(deadline.when() - before, std::chrono::hours(24 * 365 * 200));
  EXPECT_FALSE(deadline.is_never());
}

TEST(Later, adds_exactly_up_to_the_end_of_time) {
  const Clock::time_point end = Clock::time_point::max();
  const Clock::time_point from = end - nanoseconds(5'000'000);
  EXPECT_EQ(later(from, milliseconds(4)), from + milliseconds(4));
  EXPECT_EQ(later(from, milliseconds(6)), end);
  EXPECT_EQ(later(from, milliseconds(-6)), from);
}

}  // namespace
}  // namespace paceline
