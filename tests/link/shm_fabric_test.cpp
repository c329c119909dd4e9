// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/shm/shm_fabric.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "paceline/net/memory_limits.h"
#include "tests/link/link_suite.h"

namespace paceline::link {
namespace {

LinkKind shm(const std::string& name, const LocalShmOptions& options) {
  return {.name = name, .fabric_name = "shm", .spins = true, .make = [=](int world) {
            return make_local_shm_fabrics(world, options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Shm,
                         LinkSuite,
                         ::testing::Values(shm("default", {}),
                                           shm("odd",
                                               {.ring_bytes = 4099, .mapping = ShmMapping::kEach}),
                                           shm("one_mapping", {.mapping = ShmMapping::kOnce})),
                         name_of_kind);

constexpr std::size_t kMiB = 1 << 20;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const OutOfWindowMemory& refused) {
    return refused.what();
  }
  return "not refused";
}

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

/// Pages of the block that are in memory.
std::size_t pages_of(std::span<std::byte> block) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in_memory(block.size() / page);
  EXPECT_EQ(::mincore(block.data(), block.size(), in_memory.data()), 0);
  return static_cast<std::size_t>(std::count_if(
      in_memory.begin(), in_memory.end(), [](unsigned char byte) { return (byte & 1) != 0; }));
}

class ShmWindows : public ::testing::Test {
 protected:
  void make(int world, const LocalShmOptions& options = {}) {
    fabrics_ = make_local_shm_fabrics(world, options);
  }
  Fabric& at(int rank) { return *fabrics_[static_cast<std::size_t>(rank)]; }
  Windows& windows(int rank) { return *at(rank).windows(); }
  /// Waits until all peers have posted.
  void wait_for_posts(int rank, int stage, std::uint64_t value) {
    std::vector<Interest> interests;
    for (int peer = 0; peer < static_cast<int>(fabrics_.size()); ++peer)
      if (peer != rank) interests.push_back({.peer = peer, .stage = stage, .post = value});
    const auto all_there = [&] {
      return std::all_of(interests.begin(), interests.end(), [&](const Interest& interest) {
        return windows(rank).posted(interest.peer, stage) >= value;
      });
    };
    while (!all_there()) at(rank).wait(interests, soon());
  }

  Fabrics fabrics_;
};

TEST_F(ShmWindows, every_rank_maps_every_segment_and_sees_what_the_others_write) {
  make(3, {.mapping = ShmMapping::kEach});
  EXPECT_NE(windows(0).segment(1).data(), windows(1).segment(1).data());
  for (int rank = 0; rank < 3; ++rank) {
    const auto board = windows(rank).board(rank);
    ASSERT_EQ(board.size(), Windows::kBoardBytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(board.data()) % kLine, 0U);
    EXPECT_TRUE(
        std::all_of(board.begin(), board.end(), [](std::byte b) { return b == std::byte{}; }));
    board.front() = static_cast<std::byte>(10 + rank);
    board.back() = static_cast<std::byte>(20 + rank);
  }
  for (int rank = 0; rank < 3; ++rank)
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(windows(rank).board(peer).front(), static_cast<std::byte>(10 + peer));
      EXPECT_EQ(windows(rank).board(peer).back(), static_cast<std::byte>(20 + peer));
    }
}

TEST_F(ShmWindows, stages_are_posted_apart) {
  make(2);
  EXPECT_EQ(windows(1).posted(0, 2), 0U);
  windows(0).post(2, 5);
  EXPECT_EQ(windows(1).posted(0, 2), 5U);
  EXPECT_EQ(windows(0).posted(0, 2), 5U);
  EXPECT_EQ(windows(1).posted(0, 0), 0U);
  EXPECT_EQ(windows(1).posted(1, 2), 0U);
}

TEST_F(ShmWindows, what_was_written_before_a_post_is_seen_after_it) {
  constexpr int kWorld = 3;
  constexpr std::uint64_t kRounds = 300;
  make(kWorld);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kWorld; ++rank)
    ranks.emplace_back([&, rank] {
      auto* own = reinterpret_cast<std::uint64_t*>(windows(rank).board(rank).data());
      for (std::uint64_t round = 1; round <= kRounds; ++round) {
        *own = round * 10;
        windows(rank).post(0, round);
        wait_for_posts(rank, 0, round);
        for (int peer = 0; peer < kWorld; ++peer)
          ASSERT_EQ(*reinterpret_cast<std::uint64_t*>(windows(rank).board(peer).data()),
                    round * 10);
        windows(rank).post(1, round);
        wait_for_posts(rank, 1, round);
      }
    });
}

TEST_F(ShmWindows, a_sleeper_wakes_once_all_have_posted_and_not_before) {
  make(3);
  const std::array<Interest, 2> both{
      {{.peer = 1, .stage = 1, .post = 3}, {.peer = 2, .stage = 1, .post = 3}}};
  windows(1).post(1, 3);
  windows(2).post(1, 2);
  const Deadline little = Deadline::after(std::chrono::milliseconds(2));
  at(0).wait(both, little);
  EXPECT_TRUE(little.passed());
  windows(2).post(1, 3);
  at(0).wait(both, Deadline::never());
}

TEST_F(ShmWindows, posts_of_different_stages_and_values_can_be_awaited_together) {
  make(3);
  const std::array<Interest, 2> both{
      {{.peer = 1, .stage = 0, .post = 7}, {.peer = 2, .stage = 2, .post = 1}}};
  std::jthread sleeper([&] {
    while (windows(0).posted(1, 0) < 7 || windows(0).posted(2, 2) < 1) at(0).wait(both, soon());
  });
  for (std::uint64_t value = 1; value <= 7; ++value) windows(1).post(0, value);
  windows(2).post(2, 1);
}

TEST_F(ShmWindows, a_wait_for_posts_ends_for_bytes_only_if_it_asked_for_them) {
  make(2);
  const Bytes one(1);
  ASSERT_EQ(try_send(at(1).to(0), one), 1U);
  const Interest post{.peer = 1, .stage = 0, .post = 1};
  const Deadline little = Deadline::after(std::chrono::milliseconds(2));
  at(0).wait({&post, 1}, little);
  EXPECT_TRUE(little.passed());
  const Interest post_or_bytes{.peer = 1, .recv = true, .stage = 0, .post = 1};
  at(0).wait({&post_or_bytes, 1}, Deadline::never());
}

TEST_F(ShmWindows, a_wait_for_posts_ends_when_their_rank_closes) {
  make(2);
  const Interest post{.peer = 1, .stage = 0, .post = 1};
  std::latch waiting(1);
  std::jthread closer([&] {
    waiting.wait();
    at(1).close();
  });
  waiting.count_down();
  at(0).wait({&post, 1}, Deadline::never());
}

TEST_F(ShmWindows, a_rank_that_closed_after_its_post_does_not_keep_others_awake) {
  make(3);
  windows(1).post(0, 1);
  at(1).close();
  const std::array<Interest, 2> both{
      {{.peer = 1, .stage = 0, .post = 1}, {.peer = 2, .stage = 0, .post = 1}}};
  const Deadline little = Deadline::after(std::chrono::milliseconds(2));
  at(0).wait(both, little);
  EXPECT_TRUE(little.passed());
}

TEST_F(ShmWindows, there_is_no_stage_beyond_the_last) {
  make(2);
  const Interest beyond{.peer = 1, .stage = Windows::kStages, .post = 1};
  EXPECT_THROW(at(0).wait({&beyond, 1}, soon()), UsageError);
}

TEST_F(ShmWindows, allocated_memory_is_in_memory_aligned_and_seen_by_all) {
  make(2);
  const auto block = windows(0).allocate(3 * kMiB + 5);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.get()) % 64, 0U);
  EXPECT_EQ(pages_of({block.get(), 3 * kMiB}),
            3 * kMiB / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  const auto offset = block.get() - windows(0).segment(0).data();
  block.get()[3 * kMiB + 4] = std::byte{7};
  EXPECT_EQ(windows(1).segment(0)[static_cast<std::size_t>(offset) + 3 * kMiB + 4], std::byte{7});
}

TEST_F(ShmWindows, the_owner_of_any_byte_is_found) {
  make(2);
  const auto block = windows(0).allocate(100);
  EXPECT_EQ(windows(0).owner_of(block.get(), 100), 0);
  EXPECT_EQ(windows(0).owner_of(block.get(), 0), -1);
  const auto theirs = windows(0).segment(1);
  EXPECT_EQ(windows(0).owner_of(theirs.data(), 1), 1);
  EXPECT_EQ(windows(0).owner_of(&theirs.back(), 1), 1);
  EXPECT_GE(windows(0).owner_of(theirs.data() - 1, 2), 0);
  const std::byte local{};
  EXPECT_EQ(windows(0).owner_of(&local, 1), -1);
}

TEST_F(ShmWindows, memory_that_goes_back_is_merged_and_handed_out_again) {
  make(1, {.segment_bytes = 16 * kMiB});
  auto a = windows(0).allocate(4 * kMiB);
  auto b = windows(0).allocate(4 * kMiB);
  auto c = windows(0).allocate(4 * kMiB);
  std::byte* const first = a.get();
  EXPECT_TRUE(says(refusal([&] { (void)windows(0).allocate(8 * kMiB); }), "in one piece"));
  a.reset();
  c.reset();
  b.reset();
  const auto whole = windows(0).allocate(12 * kMiB);
  EXPECT_EQ(whole.get(), first);
}

TEST_F(ShmWindows, large_memory_that_goes_back_is_the_machines_again) {
  make(1, {.segment_bytes = 64 * kMiB});
  auto block = windows(0).allocate(8 * kMiB);
  const std::span<std::byte> place(block.get(), 8 * kMiB);
  EXPECT_GT(pages_of(place), 0U);
  block.reset();
  EXPECT_EQ(pages_of(place), 0U);
}

TEST_F(ShmWindows, memory_outlives_its_fabric) {
  make(2);
  const auto block = windows(0).allocate(kMiB);
  fabrics_.clear();
  std::fill_n(block.get(), kMiB, std::byte{1});
}

TEST_F(ShmWindows, under_quarantine_nothing_is_handed_out_again) {
  make(1);
  auto before = windows(0).allocate(kMiB);
  std::byte* const place = before.get();
  *place = std::byte{9};
  windows(0).quarantine();
  before.reset();
  EXPECT_EQ(*place, std::byte{9});
  EXPECT_NE(windows(0).allocate(kMiB).get(), place);
}

TEST_F(ShmWindows, more_than_the_window_holds_is_refused_with_both_sizes) {
  make(1, {.segment_bytes = 32 * kMiB});
  const std::string text = refusal([&] { (void)windows(0).allocate(64 * kMiB); });
  EXPECT_TRUE(says(text, "a window of 30 MiB cannot hold 64 MiB")) << text;
  for (const std::size_t huge : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, SIZE_MAX - 4095})
    EXPECT_TRUE(says(refusal([&] { (void)windows(0).allocate(huge); }), "cannot hold"));
  EXPECT_NE(windows(0).allocate(0), nullptr);
}

TEST_F(ShmWindows, more_than_the_machine_has_is_refused_before_it_is_taken) {
  const std::size_t bytes = net::physical_memory_bytes() / kMiB * kMiB;
  make(1, {.segment_bytes = bytes * 2});
  const std::string text = refusal([&] { (void)windows(0).allocate(bytes); });
  EXPECT_TRUE(says(text, "taking " + net::name_bytes(bytes) + " of shared memory failed")) << text;
  EXPECT_TRUE(says(text, "are free")) << text;
  EXPECT_NE(windows(0).allocate(kMiB), nullptr);
}

TEST_F(ShmWindows, threads_share_the_heap) {
  make(1);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&, thread] {
      for (std::size_t round = 0; round < 60; ++round) {
        const auto block = windows(0).allocate(1 + round * 3001);
        std::fill_n(block.get(), 1 + round * 3001, static_cast<std::byte>(thread));
        ASSERT_EQ(block.get()[round * 3001], static_cast<std::byte>(thread));
      }
    });
}

TEST_F(ShmWindows, a_fork_frees_nothing_of_its_parents_and_takes_nothing) {
  make(1);
  auto block = windows(0).allocate(2 * kMiB);
  *block = std::byte{5};
  const pid_t child = ::fork();
  if (child == 0) {
    block.reset();
    ::_exit(says(refusal([&] { (void)windows(0).allocate(1); }), "forked") ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*block, std::byte{5});
}

TEST(ShmFabric, works_with_room_for_a_single_byte) {
  const auto fabrics = make_local_shm_fabrics(2, {.ring_bytes = 1});
  const Bytes bytes = pattern(1000, 1);
  std::jthread sender([&] { send_whole(*fabrics[0], 1, bytes); });
  EXPECT_TRUE(same(recv_whole(*fabrics[1], 0, bytes.size()), bytes));
}

TEST(ShmFabric, a_place_that_cannot_be_breaks_the_link_and_reads_nothing) {
  const SegmentShape shape = segment_shape(2, 64, 1);
  const auto segment = Segment::create(shape, 0);
  ByteRing reader(segment->positions_to(1), segment->ring_to(1));
  segment->positions_to(1).head.store(65);
  EXPECT_TRUE(reader.has_bytes());
  std::array<std::byte, 128> into{};
  EXPECT_EQ(reader.read(into), 0U);
  EXPECT_TRUE(reader.is_broken());
  ByteRing writer(segment->positions_to(1), segment->ring_to(1));
  segment->positions_to(1).tail.store(1);
  EXPECT_TRUE(writer.has_room());
  EXPECT_EQ(writer.write(into), 64U);
  EXPECT_TRUE(writer.is_broken());
}

TEST(ShmFabric, refuses_worlds_and_rings_that_do_not_fit) {
  EXPECT_THROW((void)make_local_shm_fabrics(0), UsageError);
  EXPECT_THROW((void)make_local_shm_fabrics(kMostShmRanks + 1), UsageError);
  EXPECT_THROW((void)make_local_shm_fabrics(2, {.ring_bytes = 0}), UsageError);
  EXPECT_THROW((void)make_local_shm_fabrics(2, {.ring_bytes = (std::size_t{1} << 30) + 1}),
               UsageError);
  EXPECT_THROW((void)make_shm_fabric({}), UsageError);
}

}  // namespace
}  // namespace paceline::link
