// SPDX-License-Identifier: Apache-2.0
// The same as world_test, for longer: all of 1..17 ranks, more orders, more calls in flight.
#include "tests/sim/trouble.h"

namespace paceline::sim {
namespace {

TEST(WorldSweep, finishes_every_single_call_of_up_to_17_ranks) {
  expect_single_calls_work(1, 12, 4);
  expect_single_calls_work(13, 17, 1);
}

TEST(WorldSweep, finishes_thousands_of_mixes_of_calls) {
  const auto troubles = troubles_in_mixes(2000, {});
  EXPECT_TRUE(troubles.empty()) << troubles.begin()->first;
}

}  // namespace
}  // namespace paceline::sim
