// SPDX-License-Identifier: Apache-2.0
// What crosses the links, beside the closed formulas.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "paceline/paceline.h"

namespace paceline {
namespace {

TEST(Allreduce, counts_the_bytes_that_the_formula_promises) {
  for (int world = 2; world <= 8; ++world) {
    spawn_ranks(world, [&](Communicator& comm) {
      for (const Algorithm algorithm :
           {Algorithm::kRing, Algorithm::kPairwise, Algorithm::kOneStage, Algorithm::kRelay}) {
        const std::size_t count = 10007;
        std::vector<float> data(count, 1.F);
        const std::string label(name_of(algorithm));
        comm.allreduce(std::span(data), ReduceOp::kSum, {.label = label, .algorithm = algorithm});
        const Traffic traffic = comm.traffic().at(label);
        EXPECT_EQ(traffic.payload_bytes_sent,
                  comm.formula_bytes_sent(Collective::kAllReduce, Dtype::kF32, count, algorithm));
        EXPECT_EQ(traffic.header_bytes_sent, 56 * traffic.messages_sent);
        EXPECT_EQ(traffic.header_bytes_received, 56 * traffic.messages_received);
        EXPECT_EQ(traffic.calls, 1U);
      }
    });
  }
}

TEST(Broadcast, counts_the_bytes_that_the_formula_promises_from_every_root) {
  for (int world = 2; world <= 6; ++world) {
    spawn_ranks(world, [&](Communicator& comm) {
      const std::size_t count = 1003;
      std::vector<double> data(count, 1.0);
      for (int root = 0; root < world; ++root) {
        const std::string label = "from " + std::to_string(root);
        comm.broadcast(std::span(data), root, {.label = label});
        EXPECT_EQ(comm.traffic().at(label).payload_bytes_sent,
                  comm.formula_bytes_sent(Collective::kBroadcast, Dtype::kF64, count, {}, root));
      }
      EXPECT_THROW(
          (void)comm.formula_bytes_sent(Collective::kBroadcast, Dtype::kF64, count, {}, world),
          UsageError);
    });
  }
}

TEST(Barrier, sends_one_header_per_doubling) {
  spawn_ranks(6, [](Communicator& comm) {
    comm.barrier({.label = "here"});
    const Traffic traffic = comm.traffic().at("here");
    EXPECT_EQ(traffic.messages_sent, 3U);
    EXPECT_EQ(traffic.payload_bytes_sent, 0U);
  });
}

}  // namespace
}  // namespace paceline
