// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/session.h"

#include <gtest/gtest.h>

#include "tests/store/meeting.h"

namespace paceline::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::hello_of;

class SessionTest : public ::testing::Test {
 protected:
  static constexpr int kWorld = 3;
  static SessionOptions options() {
    SessionOptions o;
    o.hub.world = kWorld;
    o.generation = 5;
    o.store = "10.0.0.0:29500";
    return o;
  }
  void admit(int rank, milliseconds patience = seconds(60)) {
    session.admit(rank, hello_of(rank, patience), now);
  }
  void pass(milliseconds time) {
    now += time;
    session.advance(now);
  }
  /// Ranks that got a message of type T since the last look at all.
  template <typename T>
  std::vector<int> receivers() {
    std::vector<int> result;
    for (const auto& [to, message] : session.take_outgoing())
      if (std::holds_alternative<T>(message)) result.push_back(to);
    return result;
  }
  /// The cause that was sent, and to whom.
  std::optional<Cause> cause_for(const std::vector<int>& expected) {
    std::optional<Cause> cause;
    std::vector<int> got;
    for (const auto& [to, message] : session.take_outgoing())
      if (const auto* event = std::get_if<Event>(&message))
        if (event->kind == Event::Kind::kCause) {
          got.push_back(to);
          cause = event->cause;
        }
    EXPECT_EQ(got, expected);
    return cause;
  }

  Session::Time now = Clock::now();
  Session session{options(), now};
};

using Ranks = std::vector<int>;

TEST_F(SessionTest, tells_each_rank_about_all_once_all_have_come) {
  admit(2);
  admit(0);
  EXPECT_TRUE(session.take_outgoing().empty());
  admit(1);
  const auto out = session.take_outgoing();
  ASSERT_EQ(out.size(), 3U);
  const auto& table = std::get<Table>(out[0].message);
  EXPECT_EQ(table.generation, 5U);
  ASSERT_EQ(table.entries.size(), 3U);
  EXPECT_EQ(table.entries[2].address, "10.0.0.2:1");
  EXPECT_EQ(table.entries[1].host, "node1");
}

TEST_F(SessionTest, starts_once_all_are_connected_to_each_other) {
  for (int r = 0; r < kWorld; ++r) admit(r);
  (void)session.take_outgoing();
  session.take(0, Ready{}, now);
  session.take(2, Ready{}, now);
  session.take(2, Ready{}, now);
  EXPECT_TRUE(session.take_outgoing().empty());
  EXPECT_FALSE(session.running());
  session.take(1, Ready{}, now);
  EXPECT_EQ(receivers<Start>(), (Ranks{0, 1, 2}));
  EXPECT_TRUE(session.running());
}

TEST_F(SessionTest, ready_before_the_table_does_not_start_it) {
  admit(0);
  session.take(0, Ready{}, now);
  admit(1);
  admit(2);
  session.take(1, Ready{}, now);
  EXPECT_TRUE(receivers<Start>().empty());
}

TEST_F(SessionTest, names_the_ranks_that_never_come) {
  admit(1);
  pass(seconds(59));
  EXPECT_FALSE(session.failed());
  pass(seconds(1));
  const auto cause = cause_for({1});
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->code, CommErrc::kConnectFailed);
  EXPECT_EQ(cause->text,
            "ranks 0, 2 never came to the store at 10.0.0.0:29500 within 1 min; are they running, "
            "and were they given this address?");
  EXPECT_EQ(cause->peer, 0);
}

TEST_F(SessionTest, the_least_patient_rank_sets_the_time) {
  admit(1);
  admit(2, seconds(2));
  pass(seconds(2));
  EXPECT_EQ(
      cause_for({1, 2})->text,
      "rank 0 never came to the store at 10.0.0.0:29500 within 2 s; is it running, and was it "
      "given this address?");
}

TEST_F(SessionTest, names_the_timeout_that_was_asked_for_and_not_the_rest_of_it) {
  Hello hello = hello_of(1, milliseconds(1998));
  hello.connect_timeout = seconds(2);
  session.admit(1, hello, now);
  pass(milliseconds(1998));
  EXPECT_NE(cause_for({1})->text.find(" within 2 s;"), std::string::npos);
}

TEST_F(SessionTest, says_what_else_was_seen_at_the_door) {
  admit(1);
  admit(2);
  session.set_hint("a connection from 10.0.0.9:5 was refused: the secret differs");
  pass(seconds(60));
  EXPECT_TRUE(session.take_outgoing().size() >= 2);
  admit(0);
  EXPECT_NE(cause_for({0})->text.find("1 min; a connection from 10.0.0.9:5"), std::string::npos);
}

TEST_F(SessionTest, a_rank_that_comes_after_the_end_gets_the_reason) {
  admit(1);
  session.fail({.code = CommErrc::kRefused, .text = "no"});
  (void)session.take_outgoing();
  admit(0);
  EXPECT_EQ(cause_for({0})->text, "no");
}

TEST_F(SessionTest, a_different_algorithm_is_refused_with_both) {
  auto hello = hello_of(0);
  hello.algorithm = "ring";
  session.admit(0, hello, now);
  admit(1);
  const auto cause = cause_for({0, 1});
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->code, CommErrc::kRefused);
  EXPECT_EQ(cause->peer, 1);
  EXPECT_EQ(cause->text, "the algorithm differs: rank 0 has \"ring\", rank 1 has no override");
}

TEST_F(SessionTest, a_rank_that_leaves_before_the_start_ends_the_meeting) {
  admit(0);
  admit(1);
  session.closed(1, now);
  pass(milliseconds(100));
  const auto cause = cause_for({0});
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->code, CommErrc::kConnectFailed);
  EXPECT_EQ(cause->peer, 1);
  EXPECT_EQ(cause->text, "rank 1 has closed its connection before all ranks had met");
}

TEST_F(SessionTest, a_process_that_ends_before_it_comes_ends_the_meeting_at_once) {
  admit(0);
  session.note_exit(2, "exited with code 7", now);
  EXPECT_EQ(cause_for({0})->text, "rank 2 exited with code 7 before all ranks had met");
}

TEST_F(SessionTest, a_departure_after_the_start_is_an_event_and_no_cause) {
  for (int r = 0; r < kWorld; ++r) admit(r);
  for (int r = 0; r < kWorld; ++r) session.take(r, Ready{}, now);
  (void)session.take_outgoing();
  session.closed(1, now);
  pass(milliseconds(100));
  EXPECT_FALSE(session.failed());
  EXPECT_EQ(receivers<Event>(), (Ranks{0, 2}));
}

TEST_F(SessionTest, ranks_that_do_not_connect_are_named_a_little_after_the_deadline) {
  for (int r = 0; r < kWorld; ++r) admit(r, seconds(2));
  session.take(1, Ready{}, now);
  (void)session.take_outgoing();
  pass(seconds(2));
  EXPECT_FALSE(session.failed()) << "the ranks know better what is missing";
  pass(milliseconds(500));
  EXPECT_EQ(cause_for({0, 1, 2})->text, "ranks 0, 2 did not connect to all others within 2 s");
}

TEST_F(SessionTest, next_is_when_something_is_due) {
  EXPECT_EQ(session.next(), now + seconds(60));
  admit(0, seconds(2));
  EXPECT_EQ(session.next(), now + seconds(2));
}

}  // namespace
}  // namespace paceline::store
