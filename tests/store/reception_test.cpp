// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/reception.h"

#include <gtest/gtest.h>

#include "tests/store/meeting.h"

namespace paceline::store {
namespace {

using test::hello_of;

class ReceptionTest : public ::testing::Test {
 protected:
  Session* come(int rank) {
    refusal.clear();
    Session* session = reception.welcome(rank, hello_of(rank), now, refusal);
    if (session != nullptr) session->admit(rank, hello_of(rank), now);
    return session;
  }
  Session* start() {
    come(0);
    Session* session = come(1);
    for (int r = 0; r < 2; ++r) session->take(r, Ready{}, now);
    return session;
  }

  Session::Time now = Clock::now();
  Reception reception{{.world = 2, .secret = {}}, "10.0.0.0:29500"};
  std::string refusal;
};

TEST_F(ReceptionTest, a_rank_taken_twice_is_refused_and_ends_an_open_meeting) {
  Session* session = come(0);
  EXPECT_EQ(come(0), nullptr);
  EXPECT_EQ(refusal, "rank 0 is taken twice: by node0 (10.0.0.0:1) and by node0 (10.0.0.0:1)");
  EXPECT_TRUE(session->failed());
}

TEST_F(ReceptionTest, a_rank_taken_twice_does_not_disturb_a_running_job) {
  Session* session = start();
  EXPECT_EQ(come(1), nullptr);
  EXPECT_FALSE(session->failed());
}

TEST_F(ReceptionTest, ranks_may_meet_again_under_a_new_generation) {
  Session* first = start();
  first->closed(0, now);
  first->closed(1, now);
  Session* second = come(1);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, first);
  EXPECT_EQ(come(0), second);
}

TEST_F(ReceptionTest, ranks_may_meet_again_while_the_failed_communicator_still_exists) {
  Session* first = start();
  first->fail({.text = "aborted"});
  Session* second = come(0);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, first);
}

TEST_F(ReceptionTest, a_second_meeting_knows_whose_process_has_ended) {
  Session* first = start();
  reception.note_exit(1, "was killed by SIGKILL", now);
  first->closed(0, now);
  Session* second = come(0);
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(second->failed());
}

TEST_F(ReceptionTest, finished_sessions_are_forgotten) {
  for (int round = 0; round < 5; ++round) {
    Session* session = start();
    session->closed(0, now);
    session->closed(1, now);
    reception.forget_finished();
  }
  EXPECT_EQ(reception.sessions().size(), 1U);
}

TEST_F(ReceptionTest, a_session_is_kept_while_a_connection_of_a_rank_that_has_departed_is_open) {
  Session* first = start();
  for (int r = 0; r < 2; ++r) reception.note_exit(r, "exited with code 0", now);
  now += std::chrono::seconds(1);
  reception.advance(now);
  EXPECT_FALSE(first->connected(0) || first->connected(1)) << "both processes have ended";
  Session* second = start();
  ASSERT_NE(second, first);
  reception.forget_finished();
  ASSERT_EQ(reception.sessions().size(), 2U) << "a child of theirs may hold the sockets";
  first->closed(0, now);
  reception.forget_finished();
  ASSERT_EQ(reception.sessions().size(), 2U);
  first->closed(1, now);
  reception.forget_finished();
  EXPECT_EQ(reception.sessions().size(), 1U);
}

TEST_F(ReceptionTest, a_rank_with_other_terms_ends_an_open_meeting_for_all) {
  reception.turn_away({1, {RefusalCode::kWorld, 2, 3}}, now);
  Session* session = come(0);
  ASSERT_TRUE(session->failed());
  const auto out = session->take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(std::get<Event>(out[0].message).cause.text,
            "the store refused rank 1: world size differs: 2 here, 3 at the other end");
}

TEST_F(ReceptionTest, a_rank_with_other_terms_does_not_disturb_a_running_job) {
  Session* session = start();
  reception.turn_away({1, {RefusalCode::kWorld, 2, 3}}, now);
  EXPECT_FALSE(session->failed());
}

using Texts = std::vector<std::string>;

Stranger stranger_at(const std::string& address) {
  return {address, {.code = RefusalCode::kSecret}};
}

TEST_F(ReceptionTest, a_stranger_is_told_of_at_once_with_the_ranks_that_are_missing) {
  reception.note_stranger(stranger_at("10.0.0.2:4711"));
  EXPECT_EQ(reception.take_notices(),
            Texts{"still waiting for ranks 0, 1: a connection from 10.0.0.2:4711 was refused: the "
                  "secret differs from the one at the other end"});
  Session* session = come(0);
  reception.note_stranger(stranger_at("10.0.0.3:4711"));
  const Texts told = reception.take_notices();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0].starts_with("still waiting for rank 1: a connection from 10.0.0.3:4711 "))
      << told[0];
  EXPECT_FALSE(session->failed()) << "a stranger must not end a meeting";
}

TEST_F(ReceptionTest, a_stranger_that_tries_again_is_told_of_once) {
  come(0);
  reception.note_stranger(stranger_at("10.0.0.2:4711"));
  reception.note_stranger(stranger_at("10.0.0.2:4712"));
  EXPECT_EQ(reception.take_notices().size(), 1U);
  reception.note_stranger(stranger_at("10.0.0.3:4711"));
  EXPECT_EQ(reception.take_notices().size(), 1U) << "another host";
}

TEST_F(ReceptionTest, the_next_meeting_tells_of_strangers_anew) {
  reception.note_stranger(stranger_at("10.0.0.2:4711"));
  Session* first = come(0);
  reception.note_stranger(stranger_at("10.0.0.2:4712"));
  EXPECT_EQ(reception.take_notices().size(), 1U) << "still the first meeting";
  first->fail({.text = "aborted"});
  come(0);
  reception.note_stranger(stranger_at("10.0.0.2:4713"));
  EXPECT_EQ(reception.take_notices().size(), 1U);
}

TEST_F(ReceptionTest, of_a_crowd_of_strangers_only_the_first_few_are_told) {
  come(0);
  for (int i = 0; i < 1000; ++i)
    reception.note_stranger(stranger_at("10.0.0." + std::to_string(i) + ":1"));
  const Texts told = reception.take_notices();
  ASSERT_EQ(told.size(), 9U);
  EXPECT_EQ(told.back(), "connections that are refused from now on are only counted");
}

TEST_F(ReceptionTest, a_stranger_at_a_running_job_is_not_worth_a_word) {
  start();
  reception.note_stranger(stranger_at("10.0.0.2:4711"));
  EXPECT_TRUE(reception.take_notices().empty());
}

}  // namespace
}  // namespace paceline::store
