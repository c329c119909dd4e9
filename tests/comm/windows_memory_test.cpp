// SPDX-License-Identifier: Apache-2.0
// Shared memory itself: whose it is, how long it lives, and what ends calls through it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <latch>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "paceline/paceline.h"
#include "tests/comm/outcomes.h"
#include "tests/comm/windows_support.h"

namespace paceline {
namespace {

using test::kShm;

TEST(OverWindows, say_which_memory_there_is_no_room_for) {
  spawn_ranks(
      2,
      [](Communicator& comm) {
        EXPECT_TRUE(comm.engine().shares_memory());
        try {
          (void)comm.engine().allocate(std::size_t{1} << 60);
          ADD_FAILURE() << "an exbibyte was there";
        } catch (const UsageError& error) {
          EXPECT_NE(std::string(error.what()).find("no shared memory of"), std::string::npos)
              << error.what();
        }
        comm.barrier();  // nobody is hurt
      },
      kShm);
}

// Copies would need some of it.
TEST(OverWindows, need_no_room_for_outputs_that_only_their_owner_writes) {
  constexpr std::int64_t kCount = 300'000;
  spawn_ranks(3,
              [&](Communicator& comm) {
                const Region region = comm.engine().allocate(4 * kCount);
                std::vector<Region> rest;
                for (std::size_t bytes = 1 << 20; bytes >= 4096; bytes /= 2) {
                  try {
                    for (;;) rest.push_back(comm.engine().allocate(bytes));
                  } catch (const UsageError&) {  // all of this size are taken
                  }
                }
                const std::span<float> in(reinterpret_cast<float*>(region.data.get()), kCount);
                std::fill(in.begin(), in.end(), 2.0F);
                std::vector<float> shard(kCount / 3), all(kCount);
                comm.reduce_scatter(std::span<const float>(in), std::span(shard), ReduceOp::kSum);
                EXPECT_EQ(std::count(shard.begin(), shard.end(), 6.0F), kCount / 3);
                comm.allgather(std::span<const float>(in.first(kCount / 3)), std::span(all));
                EXPECT_EQ(std::count(all.begin(), all.end(), 2.0F), kCount);
                EXPECT_THROW(comm.allreduce(std::span(all), ReduceOp::kSum), std::exception);
              },
              {.link = LocalLink::kShm, .window_bytes = 4 << 20});
}

TEST(OverWindows, keep_a_region_when_the_communicator_has_gone) {
  std::array<Region, 2> kept;
  spawn_ranks(
      2,
      [&](Communicator& comm) {
        Region region = comm.engine().allocate(1000);
        std::memset(region.data.get(), 7, 1000);
        kept[static_cast<std::size_t>(comm.rank())] = region;
      },
      kShm);
  for (const Region& region : kept) EXPECT_EQ(region.data.get()[999], std::byte{7});
}

void expect_on_all(const std::vector<test::Outcome>& all, CommErrc code, const std::string& text) {
  for (const test::Outcome& outcome : all) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.code, code) << outcome.text;
    EXPECT_NE(outcome.text.find(text), std::string::npos) << outcome.text;
  }
}

TEST(OverWindows, end_calls_that_differ_with_both_sides_on_every_rank) {
  for (const std::size_t count : {std::size_t{100}, std::size_t{100'000}}) {
    expect_on_all(test::outcomes(
                      3,
                      [&](Communicator& comm) {
                        std::vector<float> data(comm.rank() == 1 ? count + 1 : count);
                        comm.allreduce(std::span(data), ReduceOp::kSum);
                        comm.barrier();
                        comm.barrier();
                      },
                      kShm),
                  CommErrc::kMismatch, "f32[" + std::to_string(count + 1) + "]");
  }
  expect_on_all(test::outcomes(
                    3,
                    [](Communicator& comm) {
                      std::vector<float> data(100'000);
                      comm.allreduce(
                          std::span(data), ReduceOp::kSum,
                          {.algorithm = comm.rank() == 2 ? Algorithm::kRing : Algorithm::kDirect});
                      comm.barrier();
                    },
                    kShm),
                CommErrc::kMismatch, "by ring");
}

TEST(OverWindows, name_the_rank_that_has_left) {
  std::vector<std::string> texts(3);
  try {
    spawn_ranks(
        3,
        [&](Communicator& comm) {
          std::vector<float> data(100'000);
          if (comm.rank() == 1) {
            comm.allreduce(std::span(data), ReduceOp::kSum);
            throw std::runtime_error("rank 1 has had enough");
          }
          try {  // rank 1 may be gone before the first call has ended here
            for (int i = 0; i < 2; ++i) comm.allreduce(std::span(data), ReduceOp::kSum);
          } catch (const CommError& error) {
            texts[static_cast<std::size_t>(comm.rank())] = error.what();
            throw;
          }
        },
        kShm);
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 1 has had enough");
  }
  for (const int rank : {0, 2}) {
    EXPECT_NE(texts[static_cast<std::size_t>(rank)].find("rank 1"), std::string::npos)
        << texts[static_cast<std::size_t>(rank)];
  }
}

TEST(OverWindows, can_be_memory_that_exists_once) {
  spawn_ranks(
      3,
      [](Communicator& comm) {
        const Region region = comm.share(3 * 4096);
        ASSERT_EQ(region.bytes, 3U * 4096);
        auto* const mine = region.data.get() + static_cast<std::ptrdiff_t>(4096 * comm.rank());
        EXPECT_EQ(*mine, std::byte{0});
        std::memset(mine, comm.rank() + 1, 4096);
        comm.barrier();
        for (std::ptrdiff_t rank = 0; rank < 3; ++rank) {
          EXPECT_EQ(region.data.get()[4096 * rank + 17], static_cast<std::byte>(rank + 1));
        }
        comm.barrier();
        std::span<float> shared(reinterpret_cast<float*>(region.data.get()), 3072);
        if (comm.rank() == 1) {
          try {
            comm.allreduce(shared, ReduceOp::kSum);
            ADD_FAILURE() << "memory of rank 0 was reduced";
          } catch (const UsageError& error) {
            EXPECT_NE(std::string(error.what()).find("belongs to rank 0"), std::string::npos)
                << error.what();
          }
        } else {
          std::vector<float> own(3072);
          EXPECT_THROW(comm.allreduce(std::span(own), ReduceOp::kSum), CommError);
        }
      },
      kShm);
  spawn_ranks(1, [](Communicator& comm) { EXPECT_EQ(comm.share(100).bytes, 100U); });
  spawn_ranks(2, [](Communicator& comm) { EXPECT_THROW((void)comm.share(100), UsageError); });
}

TEST(OverWindows, that_exists_once_is_waited_for_no_longer_than_told) {
  std::latch given_up(1);
  spawn_ranks(
      2,
      [&](Communicator& comm) {
        if (comm.rank() == 0) return given_up.wait();
        try {
          (void)comm.share(100, {.timeout = std::chrono::milliseconds(50)});
          ADD_FAILURE() << "rank 0 has not come";
        } catch (const CommError& error) {
          EXPECT_EQ(error.code(), CommErrc::kTimeout);
          EXPECT_NE(std::string(error.what()).find("shared memory"), std::string::npos)
              << error.what();
        }
        given_up.count_down();
      },
      kShm);
}

TEST(OverWindows, of_nobody_have_no_room_for_an_exbibyte) {
  spawn_ranks(
      2,
      [](Communicator& comm) {
        EXPECT_THROW((void)comm.share(std::size_t{1} << 60), UsageError);
        comm.barrier();
      },
      kShm);
}

TEST(OverWindows, are_asked_for_by_direct_alone) {
  spawn_ranks(2, [](Communicator& comm) {
    EXPECT_FALSE(comm.engine().shares_memory());
    std::vector<float> data(10);
    try {
      comm.allreduce(std::span(data), ReduceOp::kSum, {.algorithm = Algorithm::kDirect});
      ADD_FAILURE() << "direct went through a link without windows";
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "allreduce cannot be done by direct: the ranks share no memory");
    }
  });
}

}  // namespace
}  // namespace paceline
