// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What every kind of link must do. A kind joins by instantiating LinkSuite with its LinkKind.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/link/link.h"
#include "tests/cpu_time.h"

namespace paceline::link {

using Fabrics = std::vector<std::unique_ptr<Fabric>>;
using Bytes = std::vector<std::byte>;
using Part = std::span<const std::byte>;

struct LinkKind {
  std::string name;                  ///< of the instantiation
  std::string fabric_name;           ///< what name() must say
  bool spins = false;                ///< what worth_spinning() must say
  std::function<Fabrics(int)> make;  ///< joined fabrics of a world
};
inline std::ostream& operator<<(std::ostream& out, const LinkKind& kind) {
  return out << kind.name;
}

inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

/// Bytes that depend on `seed` and on their place, so that any mix-up shows: noise that repeats
/// after a prime number of bytes.
inline Bytes pattern(std::size_t size, unsigned seed) {
  constexpr std::size_t kPeriod = 65'521;
  Bytes bytes(size);
  std::minstd_rand random(seed + 1);
  for (std::size_t i = 0; i < std::min(size, kPeriod); ++i)
    bytes[i] = static_cast<std::byte>(random() >> 8 & 0xFF);
  for (std::size_t i = kPeriod; i < size; i += kPeriod)
    std::memcpy(&bytes[i], bytes.data(), std::min(kPeriod, size - i));
  return bytes;
}

/// Like ==, but quick under the sanitizers.
inline bool same(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

inline std::size_t try_send(Link& link, Part bytes) { return link.try_send({&bytes, 1}); }

/// Moves all of `out` to `peer` and fills `in` from it, both at once, as the one driver of
/// `fabric`.
inline void exchange(Fabric& fabric, int peer, Part out, std::span<std::byte> in) {
  while (!out.empty() || !in.empty()) {
    const std::size_t sent = out.empty() ? 0 : try_send(fabric.to(peer), out);
    const std::size_t got = fabric.to(peer).try_recv(in);
    out = out.subspan(sent);
    in = in.subspan(got);
    const Interest interest{.peer = peer, .send = !out.empty(), .recv = !in.empty()};
    if (sent == 0 && got == 0) fabric.wait({&interest, 1}, soon());
  }
}

inline void send_whole(Fabric& fabric, int peer, Part bytes) { exchange(fabric, peer, bytes, {}); }
inline Bytes recv_whole(Fabric& fabric, int peer, std::size_t size) {
  Bytes bytes(size);
  exchange(fabric, peer, {}, bytes);
  return bytes;
}

/// Waits for a byte or the end, then tries to receive one.
inline std::size_t recv_next(Fabric& fabric, int peer) {
  std::byte one{};
  for (;;) {
    if (const std::size_t got = fabric.to(peer).try_recv({&one, 1}); got != 0) return got;
    const Interest interest{.peer = peer, .recv = true};
    fabric.wait({&interest, 1}, soon());
  }
}

/// Sends until nothing fits. @return how many bytes went.
inline std::size_t fill(Fabric& fabric, int peer, Part bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const std::size_t count = try_send(fabric.to(peer), bytes.subspan(sent));
    if (count == 0) break;
    sent += count;
  }
  return sent;
}

inline std::string closed_text(const std::function<void()>& call) {
  try {
    call();
  } catch (const LinkClosed& closed) {
    return closed.what();
  }
  return "not closed";
}

class LinkSuite : public ::testing::TestWithParam<LinkKind> {
 protected:
  void SetUp() override { make(2); }
  void make(int world) { fabrics_ = GetParam().make(world); }
  Fabric& at(int rank) { return *fabrics_[static_cast<std::size_t>(rank)]; }

  Fabrics fabrics_;
  static constexpr std::size_t kMuch = 24 << 20;  // more than any link holds
};

TEST_P(LinkSuite, says_what_it_is) {
  EXPECT_EQ(at(0).name(), GetParam().fabric_name);
  EXPECT_EQ(at(0).worth_spinning(), GetParam().spins);
}

TEST_P(LinkSuite, bytes_arrive_whole_and_in_order_under_random_cuts) {
  const Bytes bytes = pattern(300'000, 1);
  std::jthread sender([&] {
    std::mt19937 random(7);
    for (std::size_t at_byte = 0; at_byte < bytes.size();) {
      const std::size_t size = std::min<std::size_t>(random() % 9000, bytes.size() - at_byte);
      send_whole(at(0), 1, Part(bytes).subspan(at_byte, size));
      at_byte += size;
    }
  });
  std::mt19937 random(8);
  Bytes got;
  while (got.size() < bytes.size()) {
    const std::size_t size = std::min<std::size_t>(random() % 7000, bytes.size() - got.size());
    const Bytes more = recv_whole(at(1), 0, size);
    got.insert(got.end(), more.begin(), more.end());
  }
  EXPECT_TRUE(same(got, bytes));
}

TEST_P(LinkSuite, both_directions_move_at_once) {
  const Bytes from_0 = pattern(kMuch, 2);
  const Bytes from_1 = pattern(kMuch, 3);
  Bytes at_0(kMuch);
  Bytes at_1(kMuch);
  std::jthread other([&] { exchange(at(1), 0, from_1, at_1); });
  exchange(at(0), 1, from_0, at_0);
  other.join();
  EXPECT_TRUE(same(at_0, from_1));
  EXPECT_TRUE(same(at_1, from_0));
}

TEST_P(LinkSuite, gathers_parts_across_their_borders) {
  const Bytes bytes = pattern(3000, 4);
  std::vector<Part> parts{Part(bytes).first(1), {}, Part(bytes).subspan(1, 63)};
  for (std::size_t i = 64; i < bytes.size(); i += 32)
    parts.push_back(Part(bytes).subspan(i, std::min<std::size_t>(32, bytes.size() - i)));
  Bytes got(bytes.size());
  std::size_t received = 0;
  for (std::size_t sent = 0; received < bytes.size();) {
    std::vector<Part> rest;
    for (std::size_t begin = 0; const Part part : parts) {
      const std::size_t skip = std::min(part.size(), sent - std::min(sent, begin));
      rest.push_back(part.subspan(skip));
      begin += part.size();
    }
    sent += at(0).to(1).try_send(rest);
    received += at(1).to(0).try_recv(std::span(got).subspan(received));
  }
  EXPECT_TRUE(same(got, bytes));
}

TEST_P(LinkSuite, no_bytes_are_no_event) {
  EXPECT_EQ(at(0).to(1).try_send({}), 0U);
  EXPECT_EQ(try_send(at(0).to(1), {}), 0U);
  EXPECT_EQ(at(1).to(0).try_recv({}), 0U);
  std::byte one{};
  EXPECT_EQ(at(1).to(0).try_recv({&one, 1}), 0U);
}

TEST_P(LinkSuite, a_full_link_takes_nothing_and_wakes_its_sender_when_room_comes) {
  const Bytes bytes = pattern(kMuch, 5);
  const std::size_t sent = fill(at(0), 1, bytes);  // until it takes nothing
  ASSERT_GT(sent, 0U);
  ASSERT_LT(sent, bytes.size()) << "took more than a link may hold";
  std::jthread reader([&] { EXPECT_TRUE(same(recv_whole(at(1), 0, bytes.size()), bytes)); });
  send_whole(at(0), 1, Part(bytes).subspan(sent));
}

TEST_P(LinkSuite, wait_returns_at_once_when_something_can_move) {
  const Interest room{.peer = 1, .send = true};
  at(0).wait({&room, 1}, Deadline::never());
  const Bytes one(1);
  ASSERT_EQ(try_send(at(0).to(1), one), 1U);
  const Interest data{.peer = 0, .recv = true};
  at(1).wait({&data, 1}, Deadline::never());
  EXPECT_EQ(recv_next(at(1), 0), 1U);
}

TEST_P(LinkSuite, wait_wakes_for_bytes) {
  std::jthread sender([&] {
    for (int i = 0; i < 300; ++i) {  // the answer proves that the other side slept or looked
      send_whole(at(0), 1, pattern(1, 0));
      (void)recv_whole(at(0), 1, 1);
    }
  });
  for (int i = 0; i < 300; ++i) {
    (void)recv_whole(at(1), 0, 1);
    send_whole(at(1), 0, pattern(1, 0));
  }
}

TEST_P(LinkSuite, wait_does_not_wake_for_what_nobody_asked_for) {
  const Bytes one(1);
  ASSERT_EQ(try_send(at(0).to(1), one), 1U);
  const Interest none{.peer = 0};
  const Deadline little = Deadline::after(std::chrono::milliseconds(2));
  at(1).wait({&none, 1}, little);
  EXPECT_TRUE(little.passed());
}

TEST_P(LinkSuite, wait_ends_at_the_deadline) {
  const Interest data{.peer = 1, .recv = true};
  const Deadline little = Deadline::after(std::chrono::milliseconds(5));
  while (!little.passed()) at(0).wait({&data, 1}, little);
  at(0).wait({&data, 1}, Deadline::after(std::chrono::seconds(-1)));
}

TEST_P(LinkSuite, wake_ends_the_current_wait) {
  std::latch about_to_sleep(1);
  std::jthread waker([&] {
    about_to_sleep.wait();
    at(0).wake();
  });
  const Interest data{.peer = 1, .recv = true};
  about_to_sleep.count_down();
  const Deadline deadline = soon();
  at(0).wait({&data, 1}, deadline);
  EXPECT_FALSE(deadline.passed());
}

TEST_P(LinkSuite, a_wake_before_the_wait_is_not_lost_and_counts_once) {
  at(0).wake();
  at(0).wake();
  const Deadline deadline = soon();
  at(0).wait({}, deadline);
  EXPECT_FALSE(deadline.passed());
  const Deadline little = Deadline::after(std::chrono::milliseconds(2));
  at(0).wait({}, little);
  EXPECT_TRUE(little.passed());
}

TEST_P(LinkSuite, many_wakes_from_many_threads_are_each_seen) {
  constexpr int kRounds = 500;
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  std::vector<std::jthread> wakers;
  for (int t = 0; t < 2; ++t)
    wakers.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        const int mine = ++asked;
        at(0).wake();
        for (int now = seen; now < mine; now = seen) seen.wait(now);
      }
    });
  const Deadline deadline = soon();
  while (seen < 2 * kRounds && !deadline.passed()) {
    at(0).wait({}, deadline);
    seen = asked.load();
    seen.notify_all();
  }
  EXPECT_EQ(seen, 2 * kRounds);
}

TEST_P(LinkSuite, the_end_comes_after_the_last_byte) {
  const Bytes bytes = pattern(1000, 6);
  ASSERT_EQ(try_send(at(0).to(1), bytes), bytes.size());
  at(0).to(1).close();
  EXPECT_TRUE(same(recv_whole(at(1), 0, bytes.size()), bytes));
  EXPECT_EQ(closed_text([&] { (void)recv_next(at(1), 0); }), "closed by the peer");
  EXPECT_EQ(closed_text([&] { (void)recv_next(at(1), 0); }), "closed by the peer");
}

TEST_P(LinkSuite, a_destroyed_fabric_closes_its_links) {
  const Bytes bytes = pattern(10, 6);
  ASSERT_EQ(try_send(at(0).to(1), bytes), bytes.size());
  fabrics_[0].reset();
  EXPECT_TRUE(same(recv_whole(at(1), 0, bytes.size()), bytes));
  EXPECT_EQ(closed_text([&] { (void)recv_next(at(1), 0); }), "closed by the peer");
}

TEST_P(LinkSuite, wait_wakes_when_the_peer_closes) {
  std::latch waiting(1);
  std::jthread closer([&] {
    waiting.wait();
    at(0).close();
  });
  waiting.count_down();
  EXPECT_EQ(closed_text([&] { (void)recv_next(at(1), 0); }), "closed by the peer");
}

TEST_P(LinkSuite, sending_to_a_closed_peer_throws) {
  fabrics_[1].reset();
  const Bytes bytes(1 << 16);
  const std::string text = closed_text([&] { send_whole(at(0), 1, Bytes(kMuch)); });
  EXPECT_TRUE(text == "closed by the peer" || text == "reset by the peer") << text;
  EXPECT_NE(closed_text([&] { (void)try_send(at(0).to(1), bytes); }), "not closed");
}

TEST_P(LinkSuite, after_the_end_was_received_sending_throws_too) {
  at(1).close();
  EXPECT_EQ(closed_text([&] { (void)recv_next(at(0), 1); }), "closed by the peer");
  EXPECT_EQ(closed_text([&] { (void)try_send(at(0).to(1), Bytes(1)); }), "closed by the peer");
}

TEST_P(LinkSuite, a_link_closed_here_says_so_and_closing_twice_is_fine) {
  at(0).to(1).close();
  at(0).to(1).close();
  at(0).close();
  EXPECT_EQ(closed_text([&] { (void)try_send(at(0).to(1), Bytes(1)); }), "closed here");
  EXPECT_EQ(closed_text([&] { (void)recv_next(at(0), 1); }), "closed here");
}

TEST_P(LinkSuite, closing_from_another_thread_ends_the_wait) {
  std::latch waiting(1);
  std::jthread closer([&] {
    waiting.wait();
    at(0).close();
  });
  waiting.count_down();
  EXPECT_EQ(closed_text([&] { (void)recv_next(at(0), 1); }), "closed here");
}

TEST_P(LinkSuite, closing_from_another_thread_stops_a_stream) {
  std::latch moving(1);
  std::jthread closer([&] {
    moving.wait();
    at(0).close();
  });
  std::jthread reader([&] {
    EXPECT_EQ(closed_text([&] {
                for (;;) (void)recv_whole(at(1), 0, 1000);
              }),
              "closed by the peer");
  });
  const Bytes bytes(10'000);
  send_whole(at(0), 1, bytes);
  moving.count_down();
  EXPECT_EQ(closed_text([&] {
              for (;;) send_whole(at(0), 1, bytes);
            }),
            "closed here");
}

TEST_P(LinkSuite, an_idle_wait_uses_less_than_2_percent_of_a_core) {
  const Interest data{.peer = 1, .recv = true};
  constexpr auto kIdle = std::chrono::milliseconds(300);
  const auto before = thread_cpu_time();
  const Deadline deadline = Deadline::after(kIdle);
  while (!deadline.passed()) at(0).wait({&data, 1}, deadline);
  EXPECT_LT(thread_cpu_time() - before, kIdle * 2 / 100);
}

TEST_P(LinkSuite, four_ranks_speak_all_to_all) {
  constexpr int kWorld = 4;
  make(kWorld);
  constexpr std::size_t kSize = 200'000;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kWorld; ++rank)
    ranks.emplace_back([&, rank] {
      std::vector<Bytes> out(kWorld);
      std::vector<Bytes> in(kWorld, Bytes(kSize));
      std::vector<std::size_t> sent(kWorld);
      std::vector<std::size_t> got(kWorld);
      for (int peer = 0; peer < kWorld; ++peer)
        out[static_cast<std::size_t>(peer)] =
            pattern(kSize, static_cast<unsigned>(rank * kWorld + peer));
      for (;;) {
        std::vector<Interest> interests;
        for (int peer = 0; peer < kWorld; ++peer) {
          if (peer == rank) continue;
          const auto p = static_cast<std::size_t>(peer);
          if (sent[p] < kSize)
            sent[p] += try_send(at(rank).to(peer), Part(out[p]).subspan(sent[p]));
          got[p] += at(rank).to(peer).try_recv(std::span(in[p]).subspan(got[p]));
          if (sent[p] < kSize || got[p] < kSize)
            interests.push_back({.peer = peer, .send = sent[p] < kSize, .recv = got[p] < kSize});
        }
        if (interests.empty()) break;
        at(rank).wait(interests, soon());
      }
      for (int peer = 0; peer < kWorld; ++peer) {
        if (peer == rank) continue;
        EXPECT_TRUE(in[static_cast<std::size_t>(peer)] ==
                    pattern(kSize, static_cast<unsigned>(peer * kWorld + rank)))
            << peer << " to " << rank;
      }
    });
}

TEST_P(LinkSuite, closing_one_link_leaves_the_others_alone) {
  make(3);
  at(0).to(1).close();
  EXPECT_EQ(closed_text([&] { (void)recv_next(at(1), 0); }), "closed by the peer");
  const Bytes bytes = pattern(100, 9);
  send_whole(at(0), 2, bytes);
  EXPECT_TRUE(same(recv_whole(at(2), 0, bytes.size()), bytes));
}

TEST_P(LinkSuite, a_world_of_one_has_no_links_but_can_wait) {
  make(1);
  EXPECT_THROW((void)at(0).to(0), UsageError);
  const Deadline little = Deadline::after(std::chrono::milliseconds(2));
  at(0).wait({}, little);
  EXPECT_TRUE(little.passed());
  at(0).wake();
  at(0).wait({}, Deadline::never());
  at(0).close();
}

TEST_P(LinkSuite, there_is_no_link_to_oneself_or_to_strangers) {
  EXPECT_THROW((void)at(0).to(0), UsageError);
  EXPECT_THROW((void)at(0).to(2), UsageError);
  EXPECT_THROW((void)at(0).to(-1), UsageError);
}

inline std::string name_of_kind(const ::testing::TestParamInfo<LinkKind>& info) {
  return info.param.name;
}

}  // namespace paceline::link
