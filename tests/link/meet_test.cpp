// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that meet over socket pairs; and a rank played by hand, who does it wrong.
#include "paceline/link/shm/meet.h"

#include <sys/mman.h>
#include <unistd.h>

#include "paceline/base/little_endian.h"
#include "paceline/net/descriptor_passing.h"
#include "paceline/net/host.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "paceline/net/system_error.h"
#include "tests/link/link_suite.h"

namespace paceline::link {
namespace {

using Sockets = std::vector<std::vector<net::Fd>>;
constexpr std::size_t kSegmentBytes = 16 << 20;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LinkSuite);

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

Sockets make_sockets(std::size_t world) {
  Sockets sockets(world);
  for (auto& row : sockets) row.resize(world);
  for (std::size_t a = 0; a < world; ++a)
    for (std::size_t b = 0; b < a; ++b) std::tie(sockets[a][b], sockets[b][a]) = net::socket_pair();
  return sockets;
}

MeetOptions options_of(std::size_t rank) {
  return {
      .rank = static_cast<int>(rank), .shm = {.segment_bytes = kSegmentBytes}, .deadline = soon()};
}

/// How one rank's meeting ended.
struct Ended {
  ShmMeeting meeting;
  std::string error = {};
  std::string kind = {};
};

Ended meet(const std::vector<net::Fd>& sockets, const MeetOptions& options) {
  Ended ended;
  try {
    ended.meeting = meet_over_shm(sockets, options);
  } catch (const UsageError& error) {
    ended.kind = "usage";
    ended.error = error.what();
  } catch (const CommError& error) {
    ended.kind = error.code() == CommErrc::kConnectFailed ? "connect" : "other";
    ended.error = error.what();
  }
  return ended;
}

std::vector<Ended> meet_all(const Sockets& sockets,
                            const std::function<void(std::size_t, MeetOptions&)>& change = {}) {
  std::vector<Ended> ended(sockets.size());
  std::vector<std::jthread> ranks;
  for (std::size_t rank = 0; rank < sockets.size(); ++rank)
    ranks.emplace_back([&, rank] {
      MeetOptions options = options_of(rank);
      if (change) change(rank, options);
      ended[rank] = meet(sockets[rank], options);
    });
  ranks.clear();
  return ended;
}

/// Whether the sockets carry exactly what is sent now: nothing was left in them.
void expect_clean(const Sockets& sockets) {
  std::array<std::byte, 1> got{};
  for (std::size_t a = 0; a < sockets.size(); ++a)
    for (std::size_t b = 0; b < sockets.size(); ++b) {
      if (a == b) continue;
      net::send_all(sockets[a][b], std::array{std::byte(40 + a)}, soon());
      net::recv_exactly(sockets[b][a], got, soon());
      EXPECT_EQ(got[0], std::byte(40 + a));
    }
}

TEST(Meet, ranks_of_one_host_share_memory) {
  for (const std::size_t world : {2U, 5U}) {
    const Sockets sockets = make_sockets(world);
    auto ended = meet_all(sockets);
    for (std::size_t rank = 0; rank < world; ++rank) {
      ASSERT_NE(ended[rank].meeting.fabric, nullptr)
          << ended[rank].error << ended[rank].meeting.reason;
      EXPECT_STREQ(ended[rank].meeting.fabric->name(), "shm");
      ended[rank].meeting.fabric->windows()->post(0, rank + 1);
    }
    for (std::size_t rank = 0; rank < world; ++rank)
      for (std::size_t peer = 0; peer < world; ++peer)
        EXPECT_EQ(ended[rank].meeting.fabric->windows()->posted(static_cast<int>(peer), 0),
                  peer + 1);
    const Bytes bytes = pattern(1000, 1);
    send_whole(*ended[0].meeting.fabric, 1, bytes);
    EXPECT_TRUE(same(recv_whole(*ended[1].meeting.fabric, 0, bytes.size()), bytes));
    expect_clean(sockets);
  }
}

TEST(Meet, a_process_that_is_gone_ends_its_links_within_a_second) {
  const SegmentShape shape = segment_shape(2, 64, 1);
  ShmParts parts{.rank = 0, .segments = {Segment::create(shape, 0), Segment::create(shape, 1)}};
  parts.lives.resize(2);
  net::Fd life;
  std::tie(parts.lives[1], life) = net::socket_pair();
  const auto fabric = make_shm_fabric(std::move(parts));
  life.reset();  // as the kernel does for whoever dies
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(closed_text([&] { (void)recv_next(*fabric, 1); }), "closed by the peer");
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(1));
}

TEST(Meet, who_wishes_for_tcp_keeps_the_sockets) {
  const Sockets sockets = make_sockets(3);
  for (const Ended& ended : meet_all(
           sockets, [](std::size_t, MeetOptions& options) { options.wish = LinkWish::kTcp; })) {
    EXPECT_EQ(ended.meeting.fabric, nullptr);
    EXPECT_EQ(ended.meeting.reason, "PACELINE_LINK is tcp");
  }
  expect_clean(sockets);
}

TEST(Meet, different_wishes_are_the_same_error_on_all) {
  const Sockets sockets = make_sockets(3);
  for (const Ended& ended : meet_all(sockets, [](std::size_t rank, MeetOptions&options) {
         if (rank == 1) options.wish = LinkWish::kShm;
       })) {
    EXPECT_EQ(ended.kind, "usage");
    EXPECT_EQ(ended.error,
              "ranks want different links: PACELINE_LINK is auto at rank 0 and shm at rank 1; set "
              "it alike on all");
  }
}

TEST(Meet, one_rank_without_memory_is_the_same_reason_on_all) {
  const Sockets sockets = make_sockets(3);
  for (const Ended& ended : meet_all(sockets, [](std::size_t rank, MeetOptions&options) {
         if (rank != 0) options.shm.ring_bytes = 0;
       }))
    EXPECT_TRUE(ended.meeting.reason.starts_with("rank 1 has no memory to share: a link of shared"))
        << ended.meeting.reason << ended.error;
  expect_clean(sockets);
}

TEST(Meet, a_rank_that_goes_away_is_named) {
  Sockets sockets = make_sockets(3);
  sockets[2].clear();
  sockets.resize(2);
  for (const Ended& ended : meet_all(sockets)) {
    EXPECT_EQ(ended.kind, "connect") << ended.meeting.reason;
    EXPECT_TRUE(says(ended.error, "rank 2 went away")) << ended.error;
  }
}

TEST(Meet, a_silent_rank_is_named_at_the_deadline) {
  const Sockets sockets = make_sockets(2);
  MeetOptions options = options_of(0);
  options.deadline = Deadline::after(std::chrono::milliseconds(5));
  const Ended ended = meet(sockets[0], options);
  EXPECT_EQ(ended.kind, "connect");
  EXPECT_TRUE(says(ended.error, "rank 0: rank 1 was silent for too long")) << ended.error;
}

TEST(Meet, a_rank_that_speaks_of_other_things_is_named) {
  const Sockets sockets = make_sockets(2);
  net::send_all(sockets[1][0], pattern(kHelloBytes, 3), soon());
  const Ended ended = meet(sockets[0], options_of(0));
  EXPECT_EQ(ended.kind, "other");
  EXPECT_TRUE(says(ended.error, "rank 1 is not understood")) << ended.error;
}

TEST(Meet, there_is_no_rank_beyond_the_world) { EXPECT_EQ(meet({}, options_of(0)).kind, "usage"); }

/// Rank 1 of 2, played by hand; rank 0 is real.
class ByHand : public ::testing::Test {
 protected:
  ByHand() {
    rank_0_ = std::jthread([this] { ended_ = meet(sockets_[0], options_of(0)); });
    std::array<std::byte, kHelloBytes> bytes{};
    net::recv_exactly(to_0(), bytes, soon());
    their_ = decode_hello(bytes);
    mine_ = their_;
    mine_.token = net::random_digits();
    net::send_all(to_0(), encode(mine_), soon());
  }
  const net::Fd& to_0() const { return sockets_[1][0]; }
  net::Fd call() const { return net::connect_unix_abstract(their_.listener, soon()); }
  void greet(const net::Fd& life, std::uint32_t rank, const Token& token) const {
    std::array<std::byte, 4> number{};
    store_le<std::uint32_t>(number, rank);
    net::send_all(life, number, soon());
    net::send_all(life, std::as_bytes(std::span(token)), soon());
  }
  /// Ends rank 0's part. @return its verdict.
  Verdict say(const Verdict& verdict) {
    net::send_all(to_0(), encode(verdict), soon());
    std::array<std::byte, kVerdictBytes> bytes{};
    net::recv_exactly(to_0(), bytes, soon());
    rank_0_.join();
    return decode_verdict(bytes);
  }

  const Sockets sockets_ = make_sockets(2);
  std::jthread rank_0_;
  Ended ended_;
  Hello mine_;
  Hello their_;
};

TEST_F(ByHand, strangers_at_the_listener_are_dropped) {
  const net::Fd stranger = call();
  greet(stranger, 1, net::random_digits());
  const net::Fd nobody = call();
  greet(nobody, 77, mine_.token);
  call().reset();
  std::array<std::byte, 1> end{};
  EXPECT_THROW(net::recv_exactly(stranger, end, soon()), net::EndOfStream);
  EXPECT_THROW(net::recv_exactly(nobody, end, soon()), net::EndOfStream);
  const SegmentShape shape = segment_shape(2, ShmOptions{}.ring_bytes, kSegmentBytes);
  const auto segment = Segment::create(shape, 1);
  const net::Fd life = call();
  greet(life, 1, mine_.token);
  net::send_descriptor(life, segment->memory().file(), soon());
  std::array<std::byte, 36> greeting{};
  net::recv_exactly(life, greeting, soon());
  EXPECT_TRUE(
      std::ranges::equal(std::span(greeting).subspan(4), std::as_bytes(std::span(their_.token))));
  (void)Segment::map(shape, 0, net::recv_descriptor(life, soon()));
  EXPECT_EQ(say({}).kind, Verdict::Kind::kGood);
  EXPECT_NE(ended_.meeting.fabric, nullptr);
}

TEST_F(ByHand, memory_that_could_change_its_size_is_refused) {
  const net::Fd unsealed(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.raw(), kSegmentBytes), 0);
  const net::Fd life = call();
  greet(life, 1, mine_.token);
  net::send_descriptor(life, unsealed, soon());
  EXPECT_EQ(say({}).kind, Verdict::Kind::kBad);
  EXPECT_TRUE(says(ended_.meeting.reason, "its size may change")) << ended_.meeting.reason;
}

TEST_F(ByHand, memory_of_another_job_is_refused) {
  const auto segment = Segment::create(segment_shape(3, ShmOptions{}.ring_bytes, kSegmentBytes), 1);
  const net::Fd life = call();
  greet(life, 1, mine_.token);
  net::send_descriptor(life, segment->memory().file(), soon());
  EXPECT_EQ(say({}).kind, Verdict::Kind::kBad);
  EXPECT_TRUE(says(ended_.meeting.reason, "rank 0: mapping the segment of rank 1 failed"))
      << ended_.meeting.reason;
}

TEST_F(ByHand, a_rank_that_fails_keeps_nobody_waiting_and_its_reason_counts) {
  EXPECT_EQ(say({.kind = Verdict::Kind::kBad, .why = "no more files"}).kind,
            Verdict::Kind::kFollows);
  EXPECT_EQ(ended_.meeting.reason, "rank 1: no more files");
}

Hello alike() { return {.user = 7, .host = "host: a\nnetwork namespace: net:[1]"}; }

TEST(WhyNot, names_the_lowest_rank_that_lives_elsewhere) {
  std::vector<Hello> hellos(4, alike());
  EXPECT_EQ(why_not(hellos), "");
  hellos[3].host = "host: b\nnetwork namespace: net:[1]";
  EXPECT_EQ(why_not(hellos), "rank 3 runs on another host (b; rank 0: a)");
  hellos[2].host = "host: a\nnetwork namespace: net:[2]";
  EXPECT_EQ(why_not(hellos), "rank 2 is in another network namespace (net:[2]; rank 0: net:[1])");
  hellos[1].user = 8;
  EXPECT_EQ(why_not(hellos), "rank 1 is of another user (8; rank 0: 7)");
  hellos[0].trouble = "a limit";
  EXPECT_EQ(why_not(hellos), "rank 0 has no memory to share: a limit");
}

TEST(WhyNot, segments_and_links_have_one_size) {
  std::vector<Hello> hellos(2, alike());
  hellos[1].ring_bytes = 5;
  EXPECT_EQ(why_not(hellos), "rank 1 has links of 5 B, rank 0 of 0 B");
  hellos[1].segment_bytes = 64 << 20;
  EXPECT_EQ(why_not(hellos), "rank 1 would share 64 MiB, rank 0 0 B");
}

TEST(Hello, comes_back_as_it_was_said_and_texts_are_cut) {
  Hello hello = alike();
  hello.wish = LinkWish::kShm;
  hello.segment_bytes = 1ULL << 40;
  hello.token = net::random_digits();
  hello.listener = "name";
  hello.trouble = std::string(1000, 'x') + "\x01";
  const Hello back = decode_hello(encode(hello));
  EXPECT_EQ(back.wish, hello.wish);
  EXPECT_EQ(back.token, hello.token);
  EXPECT_EQ(back.host, hello.host);
  EXPECT_EQ(back.segment_bytes, hello.segment_bytes);
  EXPECT_EQ(back.trouble, std::string(400, 'x'));
  EXPECT_EQ(decode_verdict(encode(Verdict{.kind = Verdict::Kind::kBad,
                                          .why = "a\x1b"
                                                 "b"}))
                .why,
            "a?b");
  auto broken = encode(hello);
  broken[8] = std::byte{9};
  EXPECT_THROW((void)decode_hello(broken), std::runtime_error);
}

}  // namespace
}  // namespace paceline::link
