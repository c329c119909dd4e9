// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/poll.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "paceline/net/futex.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "paceline/net/wakeup.h"

namespace paceline::net {
namespace {

using std::chrono::milliseconds;

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
Deadline now() { return Deadline::after(milliseconds(0)); }

TEST(Poll, reports_only_what_was_asked_for) {
  const auto [a, b] = socket_pair();
  std::array items{PollItem{.fd = &a, .send = true}, PollItem{.fd = &b, .recv = true}, PollItem{}};
  EXPECT_EQ(poll(items, now()), 1U);
  EXPECT_TRUE(items[0].can_send);
  EXPECT_FALSE(items[0].can_recv || items[1].can_recv || items[1].can_send);
  const std::byte one{};
  send_all(a, {&one, 1}, soon());
  EXPECT_EQ(poll(items, soon()), 2U);
  EXPECT_TRUE(items[1].can_recv);
}

TEST(Poll, a_hang_up_that_nobody_asked_for_does_not_end_the_sleep) {
  auto [a, b] = socket_pair();
  b.reset();
  PollItem item{.fd = &a};
  const Deadline deadline = Deadline::after(milliseconds(5));
  EXPECT_EQ(poll({&item, 1}, deadline), 0U);
  EXPECT_TRUE(deadline.passed());
}

TEST(Poll, a_closed_peer_makes_both_directions_ready) {
  auto [a, b] = socket_pair();
  b.reset();
  PollItem item{.fd = &a, .send = true, .recv = true};
  EXPECT_EQ(poll({&item, 1}, soon()), 1U);
  EXPECT_TRUE(item.can_send && item.can_recv);
}

TEST(Poll, never_returns_empty_before_the_deadline) {
  const auto [a, b] = socket_pair();
  const Deadline deadline = Deadline::after(std::chrono::microseconds(1500));
  EXPECT_FALSE(wait_readable(a, deadline));
  EXPECT_TRUE(deadline.passed());
}

TEST(Poll, takes_more_items_than_fit_on_the_stack) {
  const auto [a, b] = socket_pair();
  std::vector<PollItem> items(100, PollItem{.fd = &a, .recv = true});
  items.back() = {.fd = &b, .send = true};
  EXPECT_EQ(poll(items, soon()), 1U);
  EXPECT_TRUE(items.back().can_send);
}

TEST(Wakeup, wakes_once_for_many_wakes) {
  Wakeup bell;
  EXPECT_FALSE(wait_readable(bell.fd(), now()));
  std::jthread other([&] {
    bell.wake();
    bell.wake();
  });
  EXPECT_TRUE(wait_readable(bell.fd(), soon()));
  other.join();
  EXPECT_TRUE(bell.drain());
  EXPECT_FALSE(bell.drain());
  EXPECT_FALSE(wait_readable(bell.fd(), now()));
}

TEST(Futex, returns_at_once_if_the_word_has_changed) {
  const std::atomic<std::uint32_t> word{1};
  EXPECT_TRUE(futex_wait(word, 0, soon()));
}

TEST(Futex, ends_at_the_deadline) {
  const std::atomic<std::uint32_t> word{0};
  const Deadline deadline = Deadline::after(milliseconds(5));
  while (futex_wait(word, 0, deadline)) {
  }
  EXPECT_TRUE(deadline.passed());
}

TEST(Futex, wakes_all_sleepers) {
  for (const FutexScope scope : {FutexScope::kPrivate, FutexScope::kShared}) {
    std::atomic<std::uint32_t> word{0};
    std::latch ready(3);
    std::atomic<int> woken{0};
    std::vector<std::jthread> sleepers;
    for (int i = 0; i < 3; ++i)
      sleepers.emplace_back([&] {
        ready.count_down();
        while (word.load() == 0) ASSERT_TRUE(futex_wait(word, 0, soon(), scope));
        ++woken;
      });
    ready.wait();
    word.store(1);
    futex_wake_all(word, scope);
    sleepers.clear();
    EXPECT_EQ(woken, 3);
  }
}

}  // namespace
}  // namespace paceline::net
