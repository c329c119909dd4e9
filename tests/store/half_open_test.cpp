// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/half_open.h"

#include <gtest/gtest.h>

#include <list>

#include "paceline/net/socket.h"

namespace paceline::store {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int kWorld = 300;

Terms terms_of(Side side, int rank) {
  const bool knocks = side == Side::kInitiator;
  return {.side = side,
          .rank = knocks ? static_cast<std::uint32_t>(rank) : kStoreRank,
          .peer = knocks ? kStoreRank : kAnyRank,
          .world = kWorld,
          .secret = {}};
}

/// A gate, those who knock at it, and one thread that drives all.
class GateTest : public ::testing::Test {
 protected:
  explicit GateTest(const GateLimits& limits = {})
      : gate(listener, terms_of(Side::kAcceptor, 0), limits) {}

  [[nodiscard]] net::Fd dial() const {
    return net::connect_tcp("127.0.0.1", net::local_port(listener), Deadline::after(seconds(20)));
  }
  /// A rank comes, and says its hello as ranks do.
  void knock(int rank) {
    ranks.emplace_back(dial(), terms_of(Side::kInitiator, rank), Deadline::after(seconds(20)));
    EXPECT_EQ(ranks.back().step(), HalfOpen::Outcome::kPending);
  }
  void step() {
    gate.step();
    guests += gate.take_guests().size();
  }
  void drive_until(std::size_t expected_guests) {
    for (const auto limit = Deadline::after(seconds(20)); !limit.passed();) {
      step();
      if (guests == expected_guests) return;
      for (auto& rank : ranks) (void)rank.step();
      std::vector<net::PollItem> items;
      gate.want(items);
      net::poll(items, Deadline::earlier(gate.next(), Deadline::after(seconds(1))));
    }
  }
  /// Handshakes that go on, and the listener if the gate listens.
  [[nodiscard]] std::size_t wanted() const {
    std::vector<net::PollItem> items;
    gate.want(items);
    return items.size();
  }

  net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  Gate gate;
  std::list<HalfOpen> ranks;
  std::size_t guests = 0;
};

TEST_F(GateTest, a_burst_of_ranks_loses_none) {
  for (int r = 0; r < kWorld; ++r) knock(r);
  drive_until(kWorld);
  EXPECT_EQ(guests, std::size_t{kWorld});
  EXPECT_EQ(gate.strangers(), 0U);
}

class PatientGate : public GateTest {
 protected:
  PatientGate() : GateTest({.at_once = 2, .time = hours(2), .silence_in_a_crowd = hours(1)}) {}
};

TEST_F(PatientGate, the_next_one_waits_while_all_still_have_time) {
  std::vector<net::Fd> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(dial());
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(gate.strangers(), 0U);
  EXPECT_EQ(wanted(), 2U) << "else it would be woken for nothing, again and again";
  EXPECT_GT(gate.next().left(), minutes(50));
  EXPECT_LE(gate.next().left(), hours(1)) << "then the oldest may be displaced";
  silent[0].reset();
  knock(7);
  silent[1].reset();
  drive_until(1);
  EXPECT_EQ(guests, 1U);
}

class HastyGate : public GateTest {
 protected:
  HastyGate() : GateTest({.at_once = 2, .time = hours(2), .silence_in_a_crowd = seconds(0)}) {}
};

TEST_F(HastyGate, the_next_one_displaces_the_oldest_that_said_nothing) {
  std::vector<net::Fd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(dial());
  knock(7);
  drive_until(1);
  EXPECT_EQ(guests, 1U);
  EXPECT_EQ(gate.strangers(), 4U);
}

TEST_F(HastyGate, who_has_spoken_is_not_displaced) {
  knock(7);
  knock(8);
  step();
  step();
  const net::Fd silent = dial();
  step();
  EXPECT_EQ(gate.strangers(), 0U);
  drive_until(2);
  EXPECT_EQ(guests, 2U);
}

}  // namespace
}  // namespace paceline::store
