// SPDX-License-Identifier: Apache-2.0
// Ranks that make different calls: each ends with one error that shows both sides.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "paceline/paceline.h"
#include "tests/comm/outcomes.h"

namespace paceline {
namespace {

using test::Outcome;
using test::outcomes;

void expect_mismatch(int world,
                     const std::function<void(Communicator&)>& body,
                     const std::string& one,
                     const std::string& other) {
  // "at this call or at its next": a rank that only sends learns of it one call later.
  const auto all = outcomes(world, [&](Communicator& comm) {
    body(comm);
    for (int i = 0; i < 2; ++i) comm.barrier();
  });
  for (const Outcome& outcome : all) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.code, CommErrc::kMismatch) << outcome.text;
    EXPECT_NE(outcome.text.find(one), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find(other), std::string::npos) << outcome.text;
  }
}

class Mismatch : public ::testing::TestWithParam<int> {};

TEST_P(Mismatch, of_counts) {
  expect_mismatch(
      GetParam(),
      [](Communicator& comm) {
        std::vector<float> data(comm.rank() == 1 ? 101 : 100);
        comm.allreduce(std::span(data), ReduceOp::kSum);
      },
      "f32[100]", "f32[101]");
}

TEST_P(Mismatch, of_types) {
  expect_mismatch(
      GetParam(),
      [](Communicator& comm) {
        std::vector<float> floats(100);
        std::vector<std::int32_t> integers(100);
        if (comm.rank() == 0) {
          comm.allreduce(std::span(integers), ReduceOp::kSum);
        } else {
          comm.allreduce(std::span(floats), ReduceOp::kSum);
        }
      },
      "i32[100]", "f32[100]");
}

TEST_P(Mismatch, of_ops) {
  expect_mismatch(
      GetParam(),
      [](Communicator& comm) {
        std::vector<float> data(100);
        comm.allreduce(std::span(data), comm.rank() == 1 ? ReduceOp::kMax : ReduceOp::kSum);
      },
      "max", "sum");
}

TEST_P(Mismatch, of_roots) {
  expect_mismatch(
      GetParam(),
      [](Communicator& comm) {
        std::vector<float> data(100);
        comm.broadcast(std::span(data), comm.rank() == 1 ? 1 : 0);
      },
      "from 0", "from 1");
}

TEST_P(Mismatch, of_kinds) {
  expect_mismatch(
      GetParam(),
      [](Communicator& comm) {
        std::vector<float> data(100);
        if (comm.rank() == 0) {
          comm.barrier();
        } else {
          comm.allreduce(std::span(data), ReduceOp::kSum);
        }
      },
      "barrier", "allreduce");
}

TEST_P(Mismatch, of_labels) {
  expect_mismatch(
      GetParam(),
      [](Communicator& comm) {
        std::vector<float> data(100);
        comm.allreduce(std::span(data), ReduceOp::kSum,
                       {.label = comm.rank() == 1 ? "bucket 1" : "bucket 0"});
      },
      "bucket 0", "bucket 1");
}

TEST_P(Mismatch, of_algorithms) {
  expect_mismatch(
      GetParam(),
      [](Communicator& comm) {
        std::vector<float> data(100);
        comm.allreduce(std::span(data), ReduceOp::kSum,
                       {.algorithm = comm.rank() == 1 ? Algorithm::kRelay : Algorithm::kRing});
      },
      "ring", "relay");
}

INSTANTIATE_TEST_SUITE_P(Worlds, Mismatch, ::testing::Values(2, 3, 5));

TEST(Mismatch2, no_rank_returns_a_result_that_depends_on_it) {
  const auto all = outcomes(4, [](Communicator& comm) {
    std::vector<float> data(10000, 1.F);
    comm.allreduce(std::span(data), comm.rank() == 2 ? ReduceOp::kMax : ReduceOp::kSum,
                   {.algorithm = Algorithm::kRing});
    ADD_FAILURE() << "rank " << comm.rank() << " returned";
  });
  for (const Outcome& outcome : all) EXPECT_EQ(outcome.code, CommErrc::kMismatch) << outcome.text;
}

TEST(Mismatch2, of_a_barrier_is_not_hidden_by_the_next_one) {
  const auto all = outcomes(2, [](Communicator& comm) {
    const std::string label = comm.rank() == 0 ? "this" : "that";
    Work first = comm.barrier_async({.label = label});
    Work second = comm.barrier_async({.label = "same"});
    second.wait();
    first.wait();
    ADD_FAILURE() << "rank " << comm.rank() << " returned";
  });
  // The second cannot even start on a rank that has noticed the first: that error quotes the cause.
  for (const Outcome& outcome : all) {
    EXPECT_TRUE(outcome.code == CommErrc::kMismatch || outcome.code == CommErrc::kAborted);
    EXPECT_NE(outcome.text.find("rank 0: barrier by tree \"this\""), std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find("rank 1: barrier by tree \"that\""), std::string::npos)
        << outcome.text;
  }
}

}  // namespace
}  // namespace paceline
