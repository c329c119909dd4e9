// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/call_cursor.h"

#include <gtest/gtest.h>

namespace paceline {
namespace {

using plan::Kind;
using plan::Memory;

constexpr Algorithm kRing = Algorithm::kRing;

CallCursor ring(int rank, int world, std::uint64_t count) {
  const plan::Shape shape{
      .what = Collective::kAllReduce, .rank = rank, .world = world, .count = count};
  return {plan::make_schedule(kRing, shape), rank, world};
}

TEST(CallCursor, a_send_waits_for_the_elements_that_it_passes_on) {
  CallCursor cursor = ring(0, 3, 300);
  const auto first = cursor.first_out(1);
  EXPECT_EQ(cursor.limit(first), cursor.step(first).elements.end);  // own data: free to go
  cursor.advance(first, 100);
  cursor.finish(first);
  const auto second = cursor.first_out(1);  // passes on what rank 2 has yet to send
  EXPECT_EQ(cursor.limit(second), cursor.at(second));
  const auto receive = cursor.first_in(2);
  ASSERT_EQ(cursor.step(receive).elements, cursor.step(second).elements);
  cursor.advance(receive, 40);
  EXPECT_EQ(cursor.limit(second), cursor.at(second) + 40);  // segments pipeline
}

TEST(CallCursor, only_the_first_step_of_a_lane_is_a_candidate) {
  CallCursor cursor = ring(1, 4, 400);
  const auto first = cursor.first_in(0);
  EXPECT_EQ(cursor.message(first), 0U);
  cursor.advance(first, cursor.step(first).elements.size());
  cursor.finish(first);
  EXPECT_EQ(cursor.message(cursor.first_in(0)), 1U);
  EXPECT_EQ(cursor.first_in(3), CallCursor::kNone);
}

TEST(CallCursor, inbox_slots_are_memory_of_their_own) {
  const plan::Shape shape{.what = Collective::kAllReduce, .rank = 0, .world = 3, .count = 30};
  const CallCursor cursor(plan::make_schedule(Algorithm::kOneStage, shape), 0, 3);
  for (const int peer : {1, 2}) {
    const auto in = cursor.first_in(peer);
    EXPECT_EQ(cursor.limit(in), 30U);  // neither receive waits for the other
  }
  const auto fold = cursor.first_local();
  EXPECT_EQ(cursor.limit(fold), cursor.at(fold));  // but the fold waits for both
}

TEST(CallCursor, is_done_when_all_steps_are) {
  CallCursor cursor = ring(0, 1, 10);
  EXPECT_FALSE(cursor.done());
  cursor.finish(cursor.first_local());
  EXPECT_TRUE(cursor.done());
}

}  // namespace
}  // namespace paceline
