// SPDX-License-Identifier: Apache-2.0
// One suite for every kind of control channel.
#include "paceline/store/control.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "paceline/net/poll.h"
#include "paceline/store/tcp_control.h"
#include "tests/store/meeting.h"

namespace paceline::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A job's controls and what they need to live.
struct Job {
  std::unique_ptr<test::Store> store;
  std::vector<net::Fd> sockets;
  std::vector<std::unique_ptr<Control>> controls;
};

Job memory_job(int world) { return {nullptr, {}, make_memory_controls(world)}; }

Job tcp_job(int world) {
  Job job{std::make_unique<test::Store>(world), {}, {}};
  for (auto& outcome : test::join_all(test::everybody(*job.store, world))) {
    if (outcome.error) throw *outcome.error;
    job.controls.push_back(std::move(outcome.membership->control));
  }
  return job;
}

struct Kind {
  const char* name;
  Job (*make)(int world);
};

class ControlSuite : public ::testing::TestWithParam<Kind> {
 protected:
  void start(int world) { job = GetParam().make(world); }
  Control& rank(int r) { return *job.controls.at(static_cast<std::size_t>(r)); }
  std::optional<Event> next(int r) { return rank(r).next(Deadline::after(seconds(20))); }
  /// The next cause of a rank, answering nothing on the way.
  std::optional<Cause> cause(int r) {
    while (auto event = next(r))
      if (event->kind == Event::Kind::kCause) return event->cause;
    return std::nullopt;
  }
  Job job;
};

INSTANTIATE_TEST_SUITE_P(Of,
                         ControlSuite,
                         ::testing::Values(Kind{"memory", &memory_job}, Kind{"tcp", &tcp_job}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(ControlSuite, a_reported_cause_reaches_every_rank) {
  start(3);
  rank(1).report({.code = CommErrc::kRefused,
                  .rank = 1,
                  .peer = 1,
                  .from_sequence = 7,
                  .text = "rank 1 refuses"});
  for (int r = 0; r < 3; ++r) {
    const auto event = next(r);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->kind, Event::Kind::kCause);
    EXPECT_EQ(event->cause.code, CommErrc::kRefused);
    EXPECT_EQ(event->cause.rank, 1);
    EXPECT_EQ(event->cause.from_sequence, 7U);
    EXPECT_EQ(event->cause.text, "rank 1 refuses");
  }
}

TEST_P(ControlSuite, a_difference_is_told_to_every_rank_with_both_sides) {
  start(2);
  rank(0).publish({.sequence = 4, .issued = 5, .hash = 1, .text = "barrier"});
  const auto asked = next(1);
  ASSERT_TRUE(asked);
  ASSERT_EQ(asked->kind, Event::Kind::kAsk);
  EXPECT_EQ(asked->sequence, 4U);
  rank(1).publish({.sequence = 4, .issued = 5, .hash = 2, .text = "allreduce f32[3] sum"});
  for (int r = 0; r < 2; ++r) {
    const auto got = cause(r);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->code, CommErrc::kMismatch);
    EXPECT_EQ(got->text,
              "call #4 differs between ranks: rank 0: barrier; rank 1: allreduce f32[3] sum");
  }
}

TEST_P(ControlSuite, a_timeout_names_the_rank_that_does_not_answer) {
  start(3);
  rank(0).report(
      {.code = CommErrc::kTimeout, .rank = 0, .peer = 1, .from_sequence = 2, .text = "stalled"});
  std::vector<std::jthread> answering;
  for (int r = 0; r < 2; ++r)
    answering.emplace_back([this, r] {
      EXPECT_EQ(next(r)->kind, Event::Kind::kAsk);
      rank(r).publish({.sequence = 2, .issued = 3, .hash = 1, .text = "barrier"});
    });
  answering.clear();
  for (int r = 0; r < 3; ++r) {
    const auto got = cause(r);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->code, CommErrc::kTimeout);
    EXPECT_EQ(got->peer, 2);
    EXPECT_EQ(got->text, "stalled; rank 2 does not answer");
  }
}

TEST_P(ControlSuite, a_rank_that_goes_is_reported_to_the_others) {
  start(3);
  job.controls[1].reset();
  for (const int r : {0, 2}) {
    const auto event = next(r);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->kind, Event::Kind::kDeparted);
    EXPECT_EQ(event->rank, 1);
    EXPECT_EQ(event->text, "rank 1 has closed its connection");
  }
}

TEST_P(ControlSuite, a_cause_comes_before_the_departure_of_its_reporter) {
  start(2);
  rank(1).report({.code = CommErrc::kAborted, .text = "out of memory"});
  job.controls[1].reset();
  const auto first = next(0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->kind, Event::Kind::kCause);
  const auto second = next(0);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->kind, Event::Kind::kDeparted);
}

TEST_P(ControlSuite, next_returns_empty_at_its_deadline) {
  start(2);
  EXPECT_FALSE(rank(0).next(Deadline::after(milliseconds(0))));
  EXPECT_FALSE(rank(0).next(Deadline::after(milliseconds(20))));
}

TEST_P(ControlSuite, interrupt_ends_the_next_next_even_if_it_came_before) {
  start(2);
  rank(0).interrupt();
  EXPECT_FALSE(rank(0).next(Deadline::never()));
}

TEST_P(ControlSuite, interrupt_ends_a_waiting_next) {
  start(2);
  std::jthread waiter([this] { EXPECT_FALSE(rank(0).next(Deadline::never())); });
  rank(0).interrupt();
}

TEST_P(ControlSuite, an_interrupt_counts_once_and_loses_no_event) {
  start(2);
  rank(0).interrupt();
  EXPECT_FALSE(rank(0).next(Deadline::never()));
  rank(1).report({.code = CommErrc::kAborted, .text = "stop"});
  EXPECT_TRUE(next(0));
}

TEST_P(ControlSuite, many_threads_may_publish_and_report) {
  start(2);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([this, t] {
        for (std::uint64_t i = 0; i < 50; ++i)
          rank(t % 2).publish({.sequence = i, .issued = i + 1, .hash = i + 1, .text = "barrier"});
      });
  }
  rank(0).report({.code = CommErrc::kAborted, .text = "end"});
  for (int r = 0; r < 2; ++r) {
    const auto got = cause(r);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->text, "end");
  }
}

TEST_P(ControlSuite, a_world_of_one_gets_its_own_causes) {
  start(1);
  rank(0).report({.code = CommErrc::kAborted, .text = "alone"});
  EXPECT_EQ(cause(0)->text, "alone");
}

TEST(MemoryControl, needs_a_rank) { EXPECT_THROW((void)make_memory_controls(0), UsageError); }

TEST(TcpControl, says_at_each_interval_that_it_is_alive) {
  constexpr milliseconds kInterval(20);
  auto [near, far] = net::socket_pair();
  const Key key{};
  const auto begin = Clock::now();
  auto control =
      make_tcp_control(Channel(std::move(near), key, Side::kInitiator), {}, "test", kInterval);
  Channel hub(std::move(far), key, Side::kAcceptor);
  std::jthread owner([&control] { EXPECT_FALSE(control->next(Deadline::never())); });
  for (int ticks = 0; ticks < 3;) {
    ASSERT_TRUE(net::wait_readable(hub.socket, Deadline::after(seconds(20))));
    ASSERT_TRUE(hub.in.pull(hub.socket));
    while (const auto message = hub.in.next()) {
      EXPECT_TRUE(std::holds_alternative<Tick>(*message));
      ++ticks;
    }
  }
  EXPECT_GE(Clock::now() - begin, 2 * kInterval) << "one tick per interval, not more";
  EXPECT_EQ(kTickInterval, seconds(1));
  control->interrupt();
}

TEST(TcpControl, what_fails_its_check_is_the_end_of_the_channel) {
  auto [near, far] = net::socket_pair();
  const Key key{};
  auto control = make_tcp_control(Channel(std::move(near), key, Side::kInitiator), {}, "test");
  Channel impostor(std::move(far), Key{std::byte{1}}, Side::kAcceptor);
  impostor.out.push(Event{.kind = Event::Kind::kCause});
  EXPECT_TRUE(impostor.out.flush(impostor.socket));
  const auto event = control->next(Deadline::after(seconds(20)));
  ASSERT_TRUE(event);
  EXPECT_EQ(event->cause.code, CommErrc::kPeerClosed);
  EXPECT_NE(event->cause.text.find("fails its check"), std::string::npos) << event->cause.text;
}

TEST(TcpControl, the_launchers_words_reach_the_others) {
  Job job = tcp_job(2);
  job.store->server().note_exit(1, "was killed by SIGKILL");
  job.controls[1].reset();
  const auto event = job.controls[0]->next(Deadline::after(seconds(20)));
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, Event::Kind::kDeparted);
  EXPECT_EQ(event->text, "rank 1 was killed by SIGKILL");
}

TEST(TcpControl, every_rank_sees_that_the_store_is_lost_and_then_nothing_more) {
  Job job = tcp_job(3);
  job.store->stop();
  for (const auto& control : job.controls) {
    const auto event = control->next(Deadline::after(seconds(20)));
    ASSERT_TRUE(event);
    EXPECT_EQ(event->kind, Event::Kind::kCause);
    EXPECT_EQ(event->cause.code, CommErrc::kPeerClosed);
    EXPECT_NE(event->cause.text.find("is lost"), std::string::npos);
    EXPECT_FALSE(control->next(Deadline::after(milliseconds(20))));
    control->report({.text = "nobody hears this"});
    control->interrupt();
    EXPECT_FALSE(control->next(Deadline::never()));
  }
}

}  // namespace
}  // namespace paceline::store
