// SPDX-License-Identifier: Apache-2.0
// The store's server and those who are not of its job. How ranks meet: join_test.cpp.
#include <gtest/gtest.h>

#include "paceline/net/poll.h"
#include "paceline/net/stream.h"
#include "paceline/store/join.h"
#include "tests/store/meeting.h"

namespace paceline::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::everybody;
using test::join_all;
using test::make_secret;
using test::Store;
using test::try_join;
using Texts = std::vector<std::string>;

Deadline soon() { return Deadline::after(seconds(20)); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// What the server wants to be told, as soon as there is something.
Texts notices_of(Server& server) {
  EXPECT_TRUE(net::wait_readable(server.notices(), soon()));
  return server.take_notices();
}

TEST(Server, another_secret_is_refused_at_once_and_the_others_learn_of_it) {
  Store store(2);
  auto wrong = store.options(1);
  wrong.secret = make_secret();
  const auto refused = try_join(wrong);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code(), CommErrc::kRefused);
  EXPECT_TRUE(contains(refused.text(), "the secret differs")) << refused.text();
  auto right = store.options(0);
  right.connect_timeout = milliseconds(1000);
  const auto waiting = try_join(right);
  ASSERT_TRUE(waiting.error);
  EXPECT_TRUE(contains(waiting.text(), "rank 1 never came")) << waiting.text();
  EXPECT_TRUE(contains(waiting.text(), "the secret differs")) << waiting.text();
  EXPECT_EQ(store.server().strangers(), 1U) << "the verdict came after the count";
}

TEST(Server, tells_at_once_whose_secret_differs_and_lets_the_job_meet_all_the_same) {
  Store store(2);
  auto wrong = store.options(1);
  wrong.secret = make_secret();
  EXPECT_TRUE(contains(try_join(wrong).text(), "the secret differs"));
  const Texts told = notices_of(store.server());
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0].starts_with("still waiting for ranks 0, 1: a connection from 127.0.0.1:"))
      << told[0];
  EXPECT_TRUE(told[0].ends_with(" was refused: the secret differs from the one at the other end"))
      << told[0];
  EXPECT_FALSE(net::wait_readable(store.server().notices(), Deadline::after({})));
  const auto ranks = join_all(everybody(store, 2));
  EXPECT_TRUE(ranks[0].membership) << ranks[0].text();
  EXPECT_TRUE(ranks[1].membership) << ranks[1].text();
}

TEST(Server, tells_at_once_who_has_no_secret) {
  Store store(2);
  auto without = store.options(1);
  without.secret = {};
  EXPECT_TRUE(try_join(without).error);
  const Texts told = notices_of(store.server());
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0].ends_with("authentication differs: a secret here, none at the other end"))
      << told[0];
}

/// Connections that are not of the job: silent ones, talkers, and ones that leave at once.
std::vector<net::Fd> strangers_at(std::uint16_t port) {
  std::vector<net::Fd> open;
  for (const std::string_view words :
       {std::string_view(), std::string_view("GET / HTTP/1.1\r\n\r\n"), std::string_view("PLHS"),
        std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0", 12)}) {
    open.push_back(net::connect_tcp("127.0.0.1", port, soon()));
    if (!words.empty())
      net::send_all(open.back(), std::as_bytes(std::span(words.data(), words.size())), soon());
  }
  (void)net::connect_tcp("127.0.0.1", port, soon());
  return open;
}

TEST(Server, strangers_do_not_disturb_the_meeting_and_are_counted) {
  Store store(3);
  const auto before = strangers_at(store.port());
  auto ranks = join_all(everybody(store, 3));
  for (const auto& rank : ranks) ASSERT_TRUE(rank.membership) << rank.text();
  // The talkers are seen through at once, the silent ones within two seconds.
  for (const auto& stranger : before) {
    std::byte word{};
    const net::Fd& fd = stranger;
    EXPECT_TRUE(net::wait_readable(fd, soon()));
    EXPECT_TRUE(net::try_read(fd, std::span(&word, 1)).closed);
  }
  // A connection is closed a moment before it is counted.
  for (const auto limit = soon(); store.server().strangers() < 5 && !limit.passed();)
    std::this_thread::yield();
  EXPECT_EQ(store.server().strangers(), 5U);
  EXPECT_TRUE(store.server().take_notices().empty()) << "they do not speak our protocol";
}

TEST(Server, a_crowd_of_silent_strangers_does_not_keep_ranks_out) {
  Store store(2);
  std::vector<net::Fd> crowd;
  for (int i = 0; i < 300; ++i)
    crowd.push_back(net::connect_tcp("127.0.0.1", store.port(), soon()));
  auto ranks = join_all(everybody(store, 2));
  ASSERT_TRUE(ranks[0].membership) << ranks[0].text();
  ASSERT_TRUE(ranks[1].membership) << ranks[1].text();
}

TEST(Server, needs_a_socket_and_a_world) {
  EXPECT_THROW(Server(net::Fd(), {.world = 2, .secret = {}}), UsageError);
  EXPECT_THROW(Server(net::listen_tcp("127.0.0.1", 0), {.world = 0, .secret = {}}), UsageError);
}

TEST(Server, ends_quickly_with_half_open_connections) {
  Store store(2);
  const auto strangers = strangers_at(store.port());
  store.stop();
}

}  // namespace
}  // namespace paceline::store
