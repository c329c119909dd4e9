// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/join.h"

#include <gtest/gtest.h>

#include <future>

#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/stream.h"
#include "paceline/store/channel.h"
#include "paceline/store/half_open.h"
#include "paceline/store/hmac.h"
#include "tests/store/meeting.h"

namespace paceline::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::everybody;
using test::join_all;
using test::make_secret;
using test::Outcome;
using test::Store;
using test::try_join;

Deadline soon() { return Deadline::after(seconds(20)); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Each rank sends its number to all others and reads theirs.
void check_sockets(std::vector<Outcome>& ranks) {
  const int world = static_cast<int>(ranks.size());
  for (int from = 0; from < world; ++from)
    for (int to = 0; to < world; ++to) {
      if (from == to) continue;
      const std::byte word{static_cast<unsigned char>(10 * from + to)};
      net::send_all(
          ranks[static_cast<std::size_t>(from)].membership->sockets[static_cast<std::size_t>(to)],
          std::span(&word, 1), soon());
    }
  for (int from = 0; from < world; ++from)
    for (int to = 0; to < world; ++to) {
      if (from == to) continue;
      std::byte word{};
      net::recv_exactly(
          ranks[static_cast<std::size_t>(to)].membership->sockets[static_cast<std::size_t>(from)],
          std::span(&word, 1), soon());
      EXPECT_EQ(std::to_integer<int>(word), 10 * from + to);
    }
}

class JoinWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, JoinWorld, ::testing::Values(1, 2, 3, 8));

TEST_P(JoinWorld, connects_every_pair_of_ranks) {
  Store store(GetParam());
  auto ranks = join_all(everybody(store, GetParam()));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ASSERT_TRUE(ranks[r].membership) << ranks[r].text();
    const Membership& mine = *ranks[r].membership;
    ASSERT_EQ(mine.sockets.size(), ranks.size());
    EXPECT_FALSE(mine.sockets[r]);
    EXPECT_NE(mine.generation, 0U);
    EXPECT_EQ(mine.generation, ranks[0].membership->generation);
    EXPECT_TRUE(mine.control);
  }
  check_sockets(ranks);
  EXPECT_EQ(store.server().strangers(), 0U);
}

TEST(Join, works_without_a_secret_if_all_agree) {
  net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  const auto port = net::local_port(listener);
  Server server(std::move(listener), {.world = 2, .secret = {}});
  std::vector<JoinOptions> options(2);
  for (int r = 0; r < 2; ++r)
    options[static_cast<std::size_t>(r)] = {
        .rank = r, .world = 2, .host = "127.0.0.1", .port = port, .secret = {}, .algorithm = ""};
  auto ranks = join_all(options);
  ASSERT_TRUE(ranks[0].membership) << ranks[0].text();
  ASSERT_TRUE(ranks[1].membership) << ranks[1].text();
}

TEST(Join, meets_at_an_abstract_local_socket_that_comes_up_later) {
  const std::string name =
      fmt::format("paceline-join-test-{}-{}", net::process_id(), random_nonzero());
  const Secret secret = make_secret();
  std::vector<JoinOptions> options(2);
  for (int r = 0; r < 2; ++r)
    options[static_cast<std::size_t>(r)] = {
        .rank = r, .world = 2, .host = "@" + name, .secret = secret, .algorithm = ""};
  auto first = std::async(std::launch::async, [&] { return try_join(options[0]); });
  Server server(net::listen_unix_abstract(name), {.world = 2, .secret = secret});
  std::vector<Outcome> ranks(2);
  ranks[1] = try_join(options[1]);
  ranks[0] = first.get();
  ASSERT_TRUE(ranks[0].membership) << ranks[0].text();
  ASSERT_TRUE(ranks[1].membership) << ranks[1].text();
  check_sockets(ranks);
}

TEST(Join, ranks_can_meet_again_with_another_generation) {
  Store store(2);
  auto first = join_all(everybody(store, 2));
  ASSERT_TRUE(first[0].membership && first[1].membership);
  const auto generation = first[0].membership->generation;
  first.clear();
  auto second = join_all(everybody(store, 2));
  ASSERT_TRUE(second[0].membership) << second[0].text();
  EXPECT_NE(second[0].membership->generation, generation);
}

TEST(Join, names_the_ranks_that_never_come) {
  Store store(4);
  auto options = std::vector{store.options(0), store.options(2)};
  for (auto& o : options) o.connect_timeout = milliseconds(1500);
  for (const auto& rank : join_all(options)) {
    ASSERT_TRUE(rank.error);
    EXPECT_EQ(rank.error->code(), CommErrc::kConnectFailed);
    EXPECT_TRUE(
        contains(rank.text(),
                 fmt::format("ranks 1, 3 never came to the store at 127.0.0.1:{} within 1500 ms; ",
                             store.port())))
        << rank.text();
  }
}

TEST(Join, no_secret_where_one_is_asked_for_is_refused) {
  Store store(2);
  auto options = store.options(1);
  options.secret = {};
  const auto refused = try_join(options);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code(), CommErrc::kRefused);
  EXPECT_TRUE(contains(refused.text(), "none here, a secret at the other end")) << refused.text();
}

TEST(Join, another_world_size_is_refused_on_all_with_both_values) {
  Store store(2);
  auto options = everybody(store, 2);
  options[1].world = 3;
  const auto ranks = join_all(options);
  for (const auto& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_EQ(rank.error->code(), CommErrc::kRefused);
    EXPECT_TRUE(contains(rank.text(), "world size differs")) << rank.text();
    EXPECT_TRUE(contains(rank.text(), "2") && contains(rank.text(), "3")) << rank.text();
  }
}

TEST(Join, another_algorithm_is_refused_on_all_with_both_values) {
  Store store(3);
  auto options = everybody(store, 3);
  options[0].algorithm = "ring";
  options[1].algorithm = "ring";
  options[2].algorithm = "relay";
  for (const auto& rank : join_all(options)) {
    ASSERT_TRUE(rank.error);
    EXPECT_EQ(rank.error->code(), CommErrc::kRefused);
    EXPECT_TRUE(contains(rank.text(), "\"ring\"")) << rank.text();
    EXPECT_TRUE(contains(rank.text(), "\"relay\"")) << rank.text();
  }
}

TEST(Join, a_rank_taken_twice_is_refused_on_all) {
  Store store(3);
  for (const auto& rank : join_all({store.options(0), store.options(1), store.options(1)})) {
    ASSERT_TRUE(rank.error);
    EXPECT_EQ(rank.error->code(), CommErrc::kRefused);
    EXPECT_TRUE(contains(rank.text(), "rank 1 is taken twice")) << rank.text();
  }
}

TEST(Join, a_rank_of_a_running_job_is_refused_and_the_job_goes_on) {
  Store store(2);
  auto ranks = join_all(everybody(store, 2));
  ASSERT_TRUE(ranks[0].membership && ranks[1].membership);
  const auto late = try_join(store.options(1));
  ASSERT_TRUE(late.error);
  EXPECT_EQ(late.error->code(), CommErrc::kRefused);
  EXPECT_FALSE(ranks[0].membership->control->next(Deadline::after(milliseconds(20))));
  check_sockets(ranks);
}

TEST(Join, a_process_that_ended_before_it_came_is_named_at_once) {
  Store store(2);
  store.server().note_exit(1, "exited with code 7");
  const auto rank = try_join(store.options(0));
  ASSERT_TRUE(rank.error);
  EXPECT_TRUE(contains(rank.text(), "rank 1 exited with code 7")) << rank.text();
}

/// Plays a store that lets one rank of 2 in, and then says nothing.
Guest let_in(const net::Fd& listener) {
  Gate gate(
      listener,
      {.side = Side::kAcceptor, .rank = kStoreRank, .peer = kAnyRank, .world = 2, .secret = {}});
  std::vector<Guest> guests;
  while (guests.empty()) {
    std::vector<net::PollItem> items;
    gate.want(items);
    net::poll(items, soon());
    gate.step();
    guests = gate.take_guests();
  }
  return std::move(guests.front());
}

/// The next cause that a rank reports on its channel.
Cause cause_from(Channel& channel) {
  for (const auto limit = soon(); !limit.passed();) {
    (void)net::wait_readable(channel.socket, limit);
    const bool alive = channel.in.pull(channel.socket);
    while (const auto message = channel.in.next())
      if (const auto* cause = std::get_if<Cause>(&*message)) return *cause;
    if (!alive) break;
  }
  ADD_FAILURE() << "no cause came";
  return {};
}

TEST(Join, says_which_address_does_not_let_a_rank_in) {
  const net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  const net::Fd rank_0 = net::listen_tcp("127.0.0.1", 0);
  const std::string address = net::local_address(rank_0);
  JoinOptions options{.rank = 1, .world = 2, .host = "127.0.0.1", .secret = {}, .algorithm = ""};
  options.port = net::local_port(listener);
  options.connect_timeout = milliseconds(300);
  auto waiting = std::async(std::launch::async, [&] { return try_join(options); });
  {
    Guest guest = let_in(listener);
    Channel channel(std::move(guest.socket), guest.session_key, Side::kAcceptor);
    channel.out.push(Table{
        .generation = 1, .first = 0, .entries = {{"node0", address}, {"node1", "127.0.0.1:1"}}});
    EXPECT_TRUE(channel.out.flush(channel.socket));
    EXPECT_EQ(cause_from(channel).text,
              fmt::format("rank 1 has no data connection with rank 0 after 300 ms; rank 1 dials "
                          "rank 0 at {} (node0): does that host let it in?",
                          address));
  }
  EXPECT_TRUE(waiting.get().error);
}

TEST(Join, the_end_of_the_store_is_seen_while_waiting) {
  const net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  JoinOptions options{.rank = 0, .world = 2, .host = "127.0.0.1", .secret = {}, .algorithm = ""};
  options.port = net::local_port(listener);
  auto waiting = std::async(std::launch::async, [&] { return try_join(options); });
  (void)let_in(listener);
  const auto rank = waiting.get();
  ASSERT_TRUE(rank.error);
  EXPECT_EQ(rank.error->code(), CommErrc::kConnectFailed);
  EXPECT_TRUE(contains(rank.text(), "has closed the connection")) << rank.text();
}

TEST(Join, a_store_that_falls_silent_is_given_up_two_seconds_after_the_deadline) {
  const net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  JoinOptions options{.rank = 0,
                      .world = 2,
                      .host = "127.0.0.1",
                      .port = net::local_port(listener),
                      .secret = {},
                      .algorithm = "",
                      .connect_timeout = seconds(1)};
  const auto start = Clock::now();
  auto waiting = std::async(std::launch::async, [&] { return try_join(options); });
  const Guest guest = let_in(listener);
  const auto rank = waiting.get();
  const auto took = Clock::now() - start;
  ASSERT_TRUE(rank.error);
  EXPECT_EQ(rank.error->code(), CommErrc::kConnectFailed);
  EXPECT_TRUE(contains(rank.text(), "has not said within 1 s that all ranks have come"))
      << rank.text();
  EXPECT_EQ(kVerdictGrace, seconds(2));
  EXPECT_GE(took, options.connect_timeout + kVerdictGrace);
  EXPECT_LT(took, options.connect_timeout + kVerdictGrace + seconds(3)) << "slack for a busy host";
}

TEST(Join, wrong_numbers_are_usage_errors) {
  EXPECT_THROW((void)join({.rank = 2, .world = 2, .host = "@x", .secret = {}, .algorithm = ""}),
               UsageError);
  EXPECT_THROW((void)join({.rank = -1, .world = 2, .host = "@x", .secret = {}, .algorithm = ""}),
               UsageError);
  EXPECT_THROW((void)join({.rank = 0, .world = 0, .host = "@x", .secret = {}, .algorithm = ""}),
               UsageError);
}

}  // namespace
}  // namespace paceline::store
