// SPDX-License-Identifier: Apache-2.0
// What a rank says of peers that are gone, or silent, in whatever way it learns of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/comm/communicator.h"
#include "paceline/comm/context.h"
#include "paceline/comm/descriptor.h"
#include "paceline/link/shm/shm_fabric.h"
#include "tests/comm/fake_links.h"
#include "tests/comm/watched_links.h"

namespace paceline {
namespace {

using test::FakeControl;
using test::FakeFabric;
using test::FakeLink;
using test::WatchedFabric;

/// Rank 0 of a world of fakes.
struct Lonely {
  explicit Lonely(int world, std::map<int, FakeLink::Give> give = {}) {
    auto own = std::make_unique<FakeControl>();
    control = own.get();
    comm.emplace(std::make_shared<Context>(
        ContextOptions{.rank = 0,
                       .world = world,
                       .fabric = std::make_unique<FakeFabric>(world - 1, std::move(give)),
                       .control = std::move(own)}));
  }
  FakeControl* control = nullptr;
  std::optional<Communicator> comm;
};

CommError error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error;
  }
  ADD_FAILURE() << "no CommError";
  return {CommErrc::kAborted, -1, -1, ""};
}

store::Event departure(int rank) {
  return {.kind = store::Event::Kind::kDeparted,
          .rank = rank,
          .text = "rank " + std::to_string(rank) + " was killed by SIGKILL"};
}

/// A frame with `payload` zeros: its header, then one byte in every second try, so that each turn
/// of the driver moves something.
class Trickle {
 public:
  Trickle(const FrameHeader& header, std::size_t payload)
      : left(payload), header_(encode(header)) {}
  std::size_t operator()(std::span<std::byte> into) {
    if (std::exchange(begun_, true) == false) {
      std::copy(header_.begin(), header_.end(), into.begin());
      return header_.size();
    }
    pause_ = !pause_;
    if (pause_ || left == 0) return 0;
    into[0] = std::byte{};
    --left;
    return 1;
  }

  std::size_t left;  ///< bytes of the payload that have not been given

 private:
  FrameBytes header_;
  bool begun_ = false;
  bool pause_ = true;
};

TEST(Departed, rank_ends_the_calls_that_need_it_though_its_link_stays_open) {
  Lonely me(3);
  std::vector<float> data(10);
  Work work = me.comm->allreduce_async(std::span(data), ReduceOp::kSum);
  me.control->say(departure(2));
  const CommError error = error_of([&] { work.wait(); });
  EXPECT_EQ(error.code(), CommErrc::kPeerClosed);
  EXPECT_EQ(error.peer(), 2);
  EXPECT_NE(std::string(error.what()).find("lost rank 2: rank 2 was killed by SIGKILL"),
            std::string::npos)
      << error.what();
}

TEST(Departed, rank_ends_a_call_that_comes_later_too) {
  Lonely me(2);
  me.control->say(departure(1));
  std::vector<float> data(10);
  EXPECT_EQ(error_of([&] { me.comm->broadcast(std::span(data), 1); }).peer(), 1);
}

TEST(Departed, rank_is_not_missed_by_a_call_that_only_sends_to_it) {
  Lonely me(2);
  me.control->say(departure(1));
  std::vector<float> data(10);
  me.comm->broadcast(std::span(data), 0);
}

TEST(Departed, rank_may_still_be_heard_for_a_while) {
  const std::size_t count = 2000;
  const Descriptor what{.what = Collective::kBroadcast,
                        .algorithm = Algorithm::kTree,
                        .dtype = Dtype::kU8,
                        .root = 1,
                        .count = count};
  Trickle trickle({.length_bytes = count, .descriptor = hash_of(what)}, count);
  Lonely me(2, {{1, std::ref(trickle)}});
  me.control->say(departure(1));
  std::vector<std::uint8_t> data(count, 1);
  me.comm->broadcast(std::span(data), 1);
  EXPECT_EQ(data.back(), 0);
}

Communicator one_of_two(int rank, std::unique_ptr<link::Fabric> fabric) {
  return Communicator(
      std::make_shared<Context>(ContextOptions{.rank = rank,
                                               .world = 2,
                                               .fabric = std::move(fabric),
                                               .control = std::make_unique<FakeControl>()}));
}

// Rank 1 comes to the barrier, ends it and leaves between rank 0's look at its posts and at its
// link: that link has ended, and nothing is missing.
TEST(Departed, rank_that_had_come_to_a_barrier_over_windows_is_not_missed) {
  auto fabrics = link::make_local_shm_fabrics(2);
  std::optional<Communicator> other = one_of_two(1, std::move(fabrics[1]));
  bool left = false;
  const auto leave = [&](link::Windows& windows) {
    bool posted = false;  // rank 0, so that rank 1 can end
    for (int stage = 0; stage < link::Windows::kStages; ++stage) {
      posted = posted || windows.posted(0, stage) != 0;
    }
    if (!posted || std::exchange(left, true)) return;
    other->barrier();
    other.reset();
  };
  Communicator me = one_of_two(0, std::make_unique<WatchedFabric>(std::move(fabrics[0]), 1, leave));
  EXPECT_NO_THROW(me.barrier());
  EXPECT_TRUE(left);
  EXPECT_EQ(error_of([&] { me.barrier(); }).peer(), 1);  // here it is missed
}

/// How often rank 0, which waits in a barrier of two, looks at its link between two sleeps: before
/// each of three, after the first, which had to begin the call.
std::vector<int> looks_between_sleeps(Algorithm algorithm, bool spins) {
  auto fabrics = link::make_local_shm_fabrics(2);
  Communicator other = one_of_two(1, std::move(fabrics[1]));
  int looks = 0;
  std::vector<int> all;
  auto watched =
      std::make_unique<WatchedFabric>(std::move(fabrics[0]), 1, [&](link::Windows&) { ++looks; });
  watched->spins = spins;
  link::Fabric* const links = watched.get();
  Work others;
  watched->before_wait = [&] {
    all.push_back(std::exchange(looks, 0));
    if (all.size() != 4) return links->wake();
    others = other.barrier_async({.algorithm = algorithm});
  };
  Communicator me = one_of_two(0, std::move(watched));
  me.barrier({.algorithm = algorithm});
  others.wait();
  EXPECT_GE(all.at(0), 1);
  return {all.begin() + 1, all.begin() + 4};
}

// What links tell must not be left until a rank wakes. One look is enough.
TEST(Departed, rank_is_looked_for_before_each_sleep) {
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kTree}) {
    EXPECT_EQ(looks_between_sleeps(algorithm, false), std::vector<int>({1, 1, 1}))
        << name_of(algorithm);
  }
}

// It spins before the first sleep only: a wake in which nothing came is followed by the next.
TEST(Departed, rank_is_looked_for_before_each_sleep_of_one_that_spins) {
  for (const int looks : looks_between_sleeps(Algorithm::kDirect, true)) {
    EXPECT_GE(looks, 1);
    EXPECT_LE(looks, 2);  // one may be that of each 64th turn
  }
}

// From hooks of backward a rank only looks in, and never sleeps.
TEST(Departed, rank_is_looked_for_now_and_then_by_one_that_only_looks_in) {
  auto fabrics = link::make_local_shm_fabrics(2);
  Communicator other = one_of_two(1, std::move(fabrics[1]));
  int looks = 0;
  Communicator me = one_of_two(0, std::make_unique<WatchedFabric>(
                                      std::move(fabrics[0]), 1, [&](link::Windows&) { ++looks; }));
  Work mine = me.engine().start({.what = Collective::kBarrier, .progress = Progress::kCaller},
                                {Dtype::kU8, 0, {}}, {Dtype::kU8, 0, {}});
  for (int i = 0; i < 128; ++i) me.engine().advance();
  EXPECT_EQ(looks, 2);
  Work others = other.barrier_async();
  mine.wait();
  others.wait();
}

TEST(LostHub, does_not_hide_a_lost_peer) {
  std::atomic<bool> told = false;
  FakeControl* control = nullptr;
  Lonely me(3, {{2, [&](std::span<std::byte>) -> std::size_t {
                   if (told && control->heard()) throw link::LinkClosed("closed by the peer");
                   return 0;
                 }}});
  control = me.control;
  std::vector<float> data(10);
  Work work = me.comm->allreduce_async(std::span(data), ReduceOp::kSum);
  me.control->say({.kind = store::Event::Kind::kCause,
                   .cause = {.code = CommErrc::kPeerClosed, .text = "the store is lost"}});
  told = true;
  const CommError error = error_of([&] { work.wait(); });
  EXPECT_EQ(error.code(), CommErrc::kPeerClosed);
  EXPECT_EQ(error.peer(), 2);
  EXPECT_NE(std::string(error.what()).find("lost rank 2: closed by the peer; the store is lost"),
            std::string::npos)
      << error.what();
}

TEST(Stall, of_one_call_is_seen_while_another_one_moves) {
  const std::size_t count = 4 << 20;
  const Descriptor what{.what = Collective::kBroadcast,
                        .algorithm = Algorithm::kTree,
                        .dtype = Dtype::kU8,
                        .root = 1,
                        .count = count};
  Trickle trickle({.sequence = 1, .length_bytes = count, .descriptor = hash_of(what)}, count);
  Lonely me(3, {{1, std::ref(trickle)}});
  std::vector<float> silent(10);
  std::vector<std::uint8_t> busy(count);
  Work first =
      me.comm->broadcast_async(std::span(silent), 2, {.timeout = std::chrono::milliseconds(50)});
  Work second = me.comm->broadcast_async(std::span(busy), 1);
  EXPECT_EQ(error_of([&] { first.wait(); }).code(), CommErrc::kTimeout);
  EXPECT_GT(trickle.left, 0U);
}

}  // namespace
}  // namespace paceline
