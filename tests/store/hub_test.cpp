// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/hub.h"

#include <gtest/gtest.h>

namespace paceline::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A hub whose clock the test turns, and the events that each rank got.
class HubTest : public ::testing::Test {
 protected:
  explicit HubTest(int world = 3) : HubTest(HubOptions{.world = world}) {}
  explicit HubTest(const HubOptions& options) : hub(options, now) {
    for (int r = 0; r < options.world; ++r) hub.joined(r, now);
  }

  void pass(milliseconds time) {
    now += time;
    hub.advance(now);
  }
  void publish(int rank, std::uint64_t sequence, std::uint64_t hash, const std::string& text) {
    hub.published(rank, {.sequence = sequence, .issued = sequence + 1, .hash = hash, .text = text},
                  now);
  }
  void answer_not_there(int rank,
                        std::uint64_t sequence,
                        std::uint64_t issued,
                        const std::string& last) {
    hub.published(rank, {.sequence = sequence, .issued = issued, .hash = 0, .text = last}, now);
  }
  void report(int rank, CommErrc code, std::uint64_t from, const std::string& text, int peer = -1) {
    hub.reported(rank, {.code = code, .peer = peer, .from_sequence = from, .text = text}, now);
  }

  /// Events of `kind` since the last look, as (rank, event).
  std::vector<Hub::Delivery> take(Event::Kind kind) {
    for (auto& d : hub.take_deliveries()) unread.push_back(d);
    std::vector<Hub::Delivery> result;
    std::erase_if(unread, [&](const Hub::Delivery& d) {
      if (d.event.kind != kind) return false;
      result.push_back(d);
      return true;
    });
    return result;
  }
  static std::vector<int> ranks(const std::vector<Hub::Delivery>& deliveries) {
    std::vector<int> result;
    for (const auto& d : deliveries) result.push_back(d.to);
    return result;
  }

  Hub::Time now = Clock::now();
  Hub hub;
  std::vector<Hub::Delivery> unread;
};

using Ranks = std::vector<int>;

TEST_F(HubTest, a_report_reaches_every_rank_at_once_the_reporter_included) {
  report(1, CommErrc::kRefused, 4, "rank 1 refuses", 1);
  const auto causes = take(Event::Kind::kCause);
  EXPECT_EQ(ranks(causes), (Ranks{0, 1, 2}));
  for (const auto& [_, event] : causes) {
    EXPECT_EQ(event.cause.code, CommErrc::kRefused);
    EXPECT_EQ(event.cause.rank, 1);
    EXPECT_EQ(event.cause.peer, 1);
    EXPECT_EQ(event.cause.from_sequence, 4U);
    EXPECT_EQ(event.cause.text, "rank 1 refuses");
  }
}

TEST_F(HubTest, the_first_cause_wins) {
  report(1, CommErrc::kAborted, 4, "first");
  (void)take(Event::Kind::kCause);
  report(2, CommErrc::kAborted, 4, "second");
  report(2, CommErrc::kAborted, 9, "third");
  EXPECT_TRUE(take(Event::Kind::kCause).empty());
  EXPECT_EQ(hub.cause()->text, "first");
}

TEST_F(HubTest, a_later_cause_follows_if_it_fails_earlier_calls) {
  report(1, CommErrc::kRefused, 20, "call 20 is refused");
  (void)take(Event::Kind::kCause);
  report(2, CommErrc::kAborted, 18, "call 18 is lost");
  const auto causes = take(Event::Kind::kCause);
  ASSERT_EQ(ranks(causes), (Ranks{0, 1, 2}));
  EXPECT_EQ(causes.front().event.cause.text, "call 18 is lost");
}

TEST_F(HubTest, a_report_names_the_connection_it_came_on_not_the_rank_it_claims) {
  hub.reported(2, {.code = CommErrc::kAborted, .rank = 0, .text = "not me"}, now);
  EXPECT_EQ(hub.cause()->rank, 2);
}

TEST_F(HubTest, publishing_asks_the_others) {
  publish(1, 17, 0xa, "allreduce f32[100] sum");
  const auto asked = take(Event::Kind::kAsk);
  EXPECT_EQ(ranks(asked), (Ranks{0, 2}));
  EXPECT_EQ(asked.front().event.sequence, 17U);
}

TEST_F(HubTest, different_descriptors_give_one_cause_with_all_variants_and_ranks) {
  publish(1, 17, 0xb, "allreduce f32[101] sum");
  publish(0, 17, 0xa, "allreduce f32[100] sum");
  EXPECT_TRUE(take(Event::Kind::kCause).empty()) << "rank 2 has not said what it holds";
  publish(2, 17, 0xa, "allreduce f32[100] sum");
  const auto causes = take(Event::Kind::kCause);
  ASSERT_EQ(ranks(causes), (Ranks{0, 1, 2}));
  EXPECT_EQ(causes.front().event.cause.code, CommErrc::kMismatch);
  EXPECT_EQ(causes.front().event.cause.from_sequence, 17U);
  EXPECT_EQ(causes.front().event.cause.rank, 1);
  EXPECT_EQ(causes.front().event.cause.text,
            "allreduce #17 differs between ranks: ranks 0, 2: allreduce f32[100] sum; "
            "rank 1: allreduce f32[101] sum");
}

TEST_F(HubTest, different_collectives_are_called_a_call) {
  publish(0, 3, 0xa, "allreduce f32[1] sum");
  publish(1, 3, 0xb, "barrier");
  answer_not_there(2, 3, 2, "barrier");
  EXPECT_EQ(hub.cause()->text,
            "call #3 differs between ranks: rank 0: allreduce f32[1] sum; rank 1: barrier");
}

TEST_F(HubTest, a_difference_is_told_without_the_rank_that_never_answers) {
  publish(0, 3, 0xa, "barrier");
  publish(1, 3, 0xb, "broadcast");
  pass(milliseconds(999));
  EXPECT_FALSE(hub.cause());
  pass(milliseconds(1));
  EXPECT_EQ(hub.cause()->code, CommErrc::kMismatch);
}

TEST_F(HubTest, equal_descriptors_are_no_cause_however_late_they_come) {
  publish(0, 3, 0xa, "barrier");
  answer_not_there(1, 3, 3, "");
  publish(2, 3, 0xa, "barrier");
  pass(seconds(2));
  publish(1, 3, 0xa, "barrier");
  pass(seconds(2));
  EXPECT_FALSE(hub.cause());
}

TEST_F(HubTest, a_rank_that_comes_later_is_compared_with_what_the_others_said_before) {
  publish(0, 3, 0xa, "barrier");
  answer_not_there(1, 3, 3, "");
  answer_not_there(2, 3, 3, "");
  (void)take(Event::Kind::kAsk);
  pass(seconds(5));
  publish(1, 3, 0xb, "broadcast f32[1] sum");
  EXPECT_EQ(ranks(take(Event::Kind::kAsk)), (Ranks{2})) << "rank 0 has told already";
  answer_not_there(2, 3, 3, "");
  ASSERT_TRUE(hub.cause());
  EXPECT_EQ(hub.cause()->code, CommErrc::kMismatch);
}

TEST_F(HubTest, a_rank_that_forgot_a_call_still_counts_with_what_it_said) {
  publish(0, 3, 0xa, "barrier");
  answer_not_there(1, 3, 3, "");
  answer_not_there(2, 3, 3, "");
  hub.published(0, {.sequence = 3, .issued = 9, .hash = 0, .text = ""}, now);
  publish(1, 3, 0xb, "broadcast");
  answer_not_there(2, 3, 3, "");
  ASSERT_TRUE(hub.cause());
  EXPECT_EQ(hub.cause()->code, CommErrc::kMismatch);
}

TEST_F(HubTest, answers_that_cross_do_not_ask_for_ever) {
  // All three stall at once: each publishes unasked, and then answers what it was asked.
  int asks = 0;
  for (int r = 0; r < 3; ++r) publish(r, 8, 0xa, "barrier");
  for (int round = 0; round < 10; ++round)
    for (const auto& [to, event] : take(Event::Kind::kAsk)) {
      ++asks;
      publish(to, event.sequence, 0xa, "barrier");
    }
  EXPECT_EQ(asks, 2);
  EXPECT_TRUE(take(Event::Kind::kAsk).empty());
}

TEST_F(HubTest, a_timeout_asks_all_and_names_the_ranks_that_have_not_come) {
  report(0, CommErrc::kTimeout, 16, "rank 0: allreduce #16 stood still for 5 min", 1);
  EXPECT_EQ(ranks(take(Event::Kind::kAsk)), (Ranks{0, 1, 2}));
  publish(0, 16, 0xa, "allreduce");
  publish(1, 16, 0xa, "allreduce");
  EXPECT_FALSE(hub.cause());
  answer_not_there(2, 16, 15, "allreduce f32[4] sum");
  ASSERT_TRUE(hub.cause());
  EXPECT_EQ(hub.cause()->code, CommErrc::kTimeout);
  EXPECT_EQ(hub.cause()->rank, 0);
  EXPECT_EQ(hub.cause()->peer, 2) << "rank 1 waits itself";
  EXPECT_EQ(hub.cause()->text,
            "rank 0: allreduce #16 stood still for 5 min; "
            "rank 2 has issued 15 calls, last allreduce f32[4] sum");
  EXPECT_EQ(ranks(take(Event::Kind::kCause)), (Ranks{0, 1, 2}));
}

TEST_F(HubTest, a_timeout_names_ranks_that_do_not_answer_within_a_second) {
  report(0, CommErrc::kTimeout, 1, "stalled");
  publish(0, 1, 0xa, "barrier");
  answer_not_there(1, 1, 0, "");
  pass(milliseconds(999));
  EXPECT_FALSE(hub.cause());
  pass(milliseconds(1));
  ASSERT_TRUE(hub.cause());
  EXPECT_EQ(hub.cause()->text, "stalled; rank 1 has issued no call; rank 2 does not answer");
}

TEST_F(HubTest, a_timeout_whose_reason_is_a_difference_says_so) {
  report(0, CommErrc::kTimeout, 1, "stalled");
  publish(0, 1, 0xa, "barrier");
  publish(1, 1, 0xb, "broadcast");
  answer_not_there(2, 1, 1, "");
  EXPECT_EQ(hub.cause()->code, CommErrc::kMismatch);
}

TEST_F(HubTest, timeouts_of_several_ranks_are_one_inquiry) {
  report(0, CommErrc::kTimeout, 1, "rank 0 stalled");
  (void)take(Event::Kind::kAsk);
  report(1, CommErrc::kTimeout, 1, "rank 1 stalled");
  EXPECT_TRUE(take(Event::Kind::kAsk).empty());
  pass(seconds(1));
  EXPECT_TRUE(hub.cause()->text.starts_with("rank 0 stalled"));
}

TEST_F(HubTest, another_cause_overtakes_a_timeout_that_is_still_asked_about) {
  report(0, CommErrc::kTimeout, 1, "stalled");
  report(2, CommErrc::kAborted, 1, "out of memory");
  EXPECT_EQ(hub.cause()->text, "out of memory");
  (void)take(Event::Kind::kCause);
  pass(seconds(2));
  EXPECT_TRUE(take(Event::Kind::kCause).empty());
}

TEST_F(HubTest, a_rank_whose_connection_closes_has_departed_after_a_short_wait_for_words) {
  hub.closed(1, now);
  pass(milliseconds(99));
  EXPECT_TRUE(take(Event::Kind::kDeparted).empty());
  pass(milliseconds(1));
  const auto departed = take(Event::Kind::kDeparted);
  ASSERT_EQ(ranks(departed), (Ranks{0, 2}));
  EXPECT_EQ(departed.front().event.rank, 1);
  EXPECT_EQ(departed.front().event.text, "rank 1 has closed its connection");
}

TEST_F(HubTest, the_launchers_words_come_with_the_departure) {
  hub.closed(1, now);
  hub.note_exit(1, "was killed by SIGKILL", now);
  const auto departed = take(Event::Kind::kDeparted);
  ASSERT_EQ(ranks(departed), (Ranks{0, 2}));
  EXPECT_EQ(departed.front().event.text, "rank 1 was killed by SIGKILL");
}

TEST_F(HubTest, last_words_that_are_still_on_their_way_come_before_the_departure) {
  hub.note_exit(1, "exited with code 7", now);
  EXPECT_TRUE(take(Event::Kind::kDeparted).empty());
  report(1, CommErrc::kAborted, 0, "rank 1: out of memory");
  hub.closed(1, now);
  const auto all = hub.take_deliveries();
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all.front().event.kind, Event::Kind::kCause);
  EXPECT_EQ(all.back().event.kind, Event::Kind::kDeparted);
  EXPECT_EQ(all.back().event.text, "rank 1 exited with code 7");
}

TEST_F(HubTest, a_process_that_ended_has_departed_even_if_somebody_holds_its_connection) {
  hub.note_exit(1, "exited with code 0", now);
  pass(milliseconds(100));
  EXPECT_EQ(ranks(take(Event::Kind::kDeparted)), (Ranks{0, 2}));
  hub.closed(1, now);
  EXPECT_TRUE(take(Event::Kind::kDeparted).empty()) << "told once";
}

TEST_F(HubTest, a_departed_rank_is_not_waited_for) {
  publish(0, 1, 0xa, "barrier");
  publish(1, 1, 0xb, "broadcast");
  hub.note_exit(2, "was killed by SIGSEGV", now);
  hub.closed(2, now);
  ASSERT_TRUE(hub.cause());
  EXPECT_EQ(hub.cause()->code, CommErrc::kMismatch);
}

TEST_F(HubTest, a_timeout_tells_how_a_missing_rank_went) {
  report(0, CommErrc::kTimeout, 1, "stalled");
  publish(0, 1, 0xa, "barrier");
  publish(1, 1, 0xa, "barrier");
  hub.note_exit(2, "was killed by SIGSEGV", now);
  hub.closed(2, now);
  ASSERT_TRUE(hub.cause());
  EXPECT_EQ(hub.cause()->text, "stalled; rank 2 was killed by SIGSEGV");
  EXPECT_EQ(hub.cause()->peer, 2);
}

TEST_F(HubTest, a_rank_silent_for_30_s_is_named) {
  for (int s = 0; s < 29; ++s) {
    pass(seconds(1));
    hub.heard(0, now);
    hub.heard(2, now);
  }
  EXPECT_FALSE(hub.cause());
  pass(seconds(1));
  ASSERT_TRUE(hub.cause());
  EXPECT_EQ(hub.cause()->code, CommErrc::kTimeout);
  EXPECT_EQ(hub.cause()->peer, 1);
  EXPECT_EQ(hub.cause()->from_sequence, 0U);
  EXPECT_EQ(hub.cause()->text,
            "rank 1 has not been heard of for 30 s: stopped, or its host is lost");
}

TEST_F(HubTest, time_in_which_the_hub_itself_was_stopped_is_no_silence) {
  pass(seconds(3600));
  EXPECT_FALSE(hub.cause());
}

TEST_F(HubTest, it_wants_to_be_woken_often_enough_to_see_silence) {
  int turns = 0;
  while (!hub.cause() && turns < 1000) {
    ++turns;
    now = hub.next();
    hub.advance(now);
  }
  ASSERT_TRUE(hub.cause());
  EXPECT_LE(turns, 20);
}

TEST_F(HubTest, nonsense_is_ignored) {
  hub.published(3, {.sequence = 1, .issued = 2, .hash = 1, .text = ""}, now);
  hub.published(-1, {.sequence = 1, .issued = 2, .hash = 1, .text = ""}, now);
  hub.reported(7, {.text = "who?"}, now);
  hub.closed(7, now);
  hub.note_exit(-2, "left", now);
  hub.heard(9, now);
  EXPECT_TRUE(hub.take_deliveries().empty());
}

TEST_F(HubTest, a_rank_cannot_make_the_hub_remember_without_bound) {
  for (std::uint64_t s = 0; s < 10'000; ++s) publish(0, s, 1, "barrier");
  EXPECT_LE(take(Event::Kind::kAsk).size(), 2U * 64);
}

class Alone : public HubTest {
 protected:
  Alone() : HubTest(1) {}
};
TEST_F(Alone, its_causes_come_back_at_once) {
  report(0, CommErrc::kTimeout, 0, "stalled");
  EXPECT_EQ(ranks(take(Event::Kind::kAsk)), (Ranks{0}));
  publish(0, 0, 1, "barrier");
  EXPECT_EQ(ranks(take(Event::Kind::kCause)), (Ranks{0}));
}

}  // namespace
}  // namespace paceline::store
