// SPDX-License-Identifier: Apache-2.0
// Barriers, and worlds of one rank.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "paceline/paceline.h"

namespace paceline {
namespace {

TEST(Barrier, holds_everyone_until_the_last_has_come) {
  for (int world = 1; world <= 9; ++world) {
    std::atomic<int> come = 0;
    spawn_ranks(world, [&](Communicator& comm) {
      for (int round = 1; round <= 20; ++round) {
        ++come;
        comm.barrier();
        EXPECT_GE(come.load(), world * round);
        comm.barrier();
      }
    });
  }
}

TEST(WorldOfOne, works_everywhere_and_sends_nothing) {
  spawn_ranks(1, [](Communicator& comm) {
    std::vector<float> data{1, 2, 3};
    comm.allreduce(std::span(data), ReduceOp::kMean);
    comm.broadcast(std::span(data), 0);
    std::vector<float> out(3);
    comm.reduce_scatter(std::span<const float>(data), std::span(out), ReduceOp::kSum);
    EXPECT_EQ(out, data);
    comm.allgather(std::span<const float>(data), std::span(out));
    EXPECT_EQ(out, data);
    comm.barrier();
    EXPECT_TRUE(comm.allreduce_async(std::span(data), ReduceOp::kSum).done());
    EXPECT_EQ(comm.traffic().at("").messages_sent, 0U);
  });
}

}  // namespace
}  // namespace paceline
