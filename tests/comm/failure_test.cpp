// SPDX-License-Identifier: Apache-2.0
// How collectives fail: on every rank, with one error that names both sides, and never in a hang.
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "paceline/paceline.h"

namespace paceline {
namespace {

struct Outcome {
  bool failed = false;
  CommErrc code{};
  int peer = -1;
  std::string text;
};

// Runs `body` on each rank and keeps what each rank's CommError says.
std::vector<Outcome> outcomes(int world, const std::function<void(Communicator&)>& body) {
  std::vector<Outcome> all(static_cast<std::size_t>(world));
  std::latch everybody(world);
  spawn_ranks(world, [&](Communicator& comm) {
    Outcome& mine = all[static_cast<std::size_t>(comm.rank())];
    try {
      body(comm);
    } catch (const CommError& error) {
      mine = {true, error.code(), error.peer(), error.what()};
    }
    everybody.arrive_and_wait();  // so that no rank fails because another one has left
  });
  return all;
}

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
  for (const Outcome& outcome : all) EXPECT_EQ(outcome.code, CommErrc::kMismatch) << outcome.text;
}

TEST(Refusal, of_a_later_call_lets_earlier_ones_end) {
  std::latch refused(1);
  const auto all = outcomes(2, [&](Communicator& comm) {
    std::vector<float> a(1000, 1.F);
    if (comm.rank() == 0) {
      Work first = comm.allreduce_async(std::span(a), ReduceOp::kSum);
      EXPECT_THROW((void)comm.allreduce_async(std::span(a), ReduceOp::kSum), UsageError);
      refused.count_down();
      first.wait();
    } else {
      refused.wait();
      comm.allreduce(std::span(a), ReduceOp::kSum);
    }
    EXPECT_EQ(a[999], 2.F);
    comm.barrier();
  });
  EXPECT_EQ(all[1].code, CommErrc::kRefused) << all[1].text;
}

TEST(Refusal, reaches_the_peers_with_its_text) {
  std::string refusal;
  const auto all = outcomes(3, [&](Communicator& comm) {
    std::vector<float> data(100);
    if (comm.rank() == 1) {
      const Piece piece{reinterpret_cast<std::byte*>(data.data()), 399};  // cuts an element
      const Buffer buffer{Dtype::kF32, 100, {&piece, 1}};
      try {
        (void)comm.engine().start({.what = Collective::kAllReduce, .count = 100}, buffer, buffer);
        ADD_FAILURE() << "accepted";
      } catch (const UsageError& error) {
        refusal = error.what();
      }
      comm.barrier();
    } else {
      comm.allreduce(std::span(data), ReduceOp::kSum);
    }
  });
  EXPECT_NE(refusal.find("399 bytes"), std::string::npos) << refusal;
  for (const int rank : {0, 2}) {
    const Outcome& outcome = all[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.code, CommErrc::kRefused) << outcome.text;
    EXPECT_EQ(outcome.peer, 1);
    EXPECT_NE(outcome.text.find("rank 1 refused"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("399 bytes"), std::string::npos) << outcome.text;
  }
  EXPECT_EQ(all[1].code, CommErrc::kAborted) << all[1].text;
}

TEST(Refusal, of_memory_that_is_still_in_flight) {
  outcomes(2, [](Communicator& comm) {
    std::vector<float> data(100);
    std::latch started(1);
    if (comm.rank() == 0) {
      Work work = comm.allreduce_async(std::span(data), ReduceOp::kSum);
      EXPECT_THROW((void)comm.allreduce_async(std::span(data).subspan(50), ReduceOp::kSum),
                   UsageError);
      work.wait();
    } else {
      comm.allreduce(std::span(data), ReduceOp::kSum);
      comm.barrier();
    }
  });
}

TEST(Usage, error_that_all_ranks_see_leaves_the_communicator_usable) {
  spawn_ranks(2, [](Communicator& comm) {
    std::vector<std::int32_t> data(10, 1);
    EXPECT_THROW(comm.allreduce(std::span(data), ReduceOp::kMean), UsageError);
    EXPECT_THROW(comm.broadcast(std::span(data), 2), UsageError);
    EXPECT_THROW(comm.broadcast(std::span(data), -1), UsageError);
    EXPECT_THROW(
        comm.allreduce(std::span(data), ReduceOp::kSum, {.timeout = std::chrono::milliseconds(0)}),
        UsageError);
    EXPECT_THROW(comm.allreduce(std::span(data), ReduceOp::kSum, {.algorithm = Algorithm::kTree}),
                 UsageError);
    comm.allreduce(std::span(data), ReduceOp::kSum);
    EXPECT_EQ(data[9], 2);
  });
}

TEST(Abort, ends_every_rank_with_the_reason) {
  const auto all = outcomes(3, [](Communicator& comm) {
    std::vector<float> data(100);
    if (comm.rank() == 2) {
      comm.abort("the loss is NaN");
    } else {
      comm.allreduce(std::span(data), ReduceOp::kSum);
    }
    comm.barrier();
  });
  for (const Outcome& outcome : all) {
    EXPECT_EQ(outcome.code, CommErrc::kAborted);
    EXPECT_NE(outcome.text.find("rank 2 aborted: the loss is NaN"), std::string::npos)
        << outcome.text;
  }
}

TEST(Departure, of_a_rank_is_named_by_the_others) {
  std::vector<Outcome> all(3);
  spawn_ranks(3, [&](Communicator& comm) {
    if (comm.rank() == 1) return;  // its communicator is destroyed
    try {
      std::vector<float> data(1000);
      comm.allreduce(std::span(data), ReduceOp::kSum);
    } catch (const CommError& error) {
      all[static_cast<std::size_t>(comm.rank())] = {true, error.code(), error.peer(), error.what()};
    }
  });
  for (const int rank : {0, 2}) {
    const Outcome& outcome = all[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.code, CommErrc::kPeerClosed) << outcome.text;
    EXPECT_EQ(outcome.peer, 1);
    EXPECT_NE(outcome.text.find("lost rank 1"), std::string::npos) << outcome.text;
  }
}

TEST(Departure, after_the_last_call_harms_nobody) {
  for (int round = 0; round < 50; ++round) {
    spawn_ranks(4, [](Communicator& comm) {
      std::vector<float> data(3000, 1.F);
      comm.allreduce(std::span(data), ReduceOp::kSum);
      EXPECT_EQ(data[2999], 4.F);
    });
  }
}

TEST(Timeout, names_the_rank_that_has_not_come) {
  std::latch done(2);
  const auto all = outcomes(3, [&](Communicator& comm) {
    if (comm.rank() == 2) {
      done.wait();
      return;
    }
    std::vector<float> data(100);
    try {
      comm.allreduce(std::span(data), ReduceOp::kSum, {.timeout = std::chrono::milliseconds(300)});
    } catch (...) {
      done.count_down();
      throw;
    }
    done.count_down();
  });
  for (const int rank : {0, 1}) {
    const Outcome& outcome = all[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.code, CommErrc::kTimeout) << outcome.text;
    EXPECT_NE(outcome.text.find("rank 2"), std::string::npos) << outcome.text;
  }
}

TEST(Poison, keeps_the_first_cause_and_quotes_it) {
  outcomes(2, [](Communicator& comm) {
    std::vector<float> data(10);
    comm.abort("first");
    for (int i = 0; i < 3; ++i) {
      try {
        comm.allreduce(std::span(data), ReduceOp::kSum);
        ADD_FAILURE() << "a poisoned communicator worked";
      } catch (const CommError& error) {
        EXPECT_EQ(error.code(), CommErrc::kAborted);
        EXPECT_NE(std::string(error.what()).find("aborted: first"), std::string::npos)
            << error.what();
      }
    }
  });
}

TEST(Destruction, with_a_call_in_flight_ends_at_once) {
  spawn_ranks(2, [](Communicator& comm) {
    std::vector<float> data(100000);
    Work work;
    {
      Communicator mine = std::move(comm);
      if (mine.rank() == 0) work = mine.allreduce_async(std::span(data), ReduceOp::kSum);
    }
    EXPECT_THROW(comm.barrier(), UsageError);  // moved from
    if (!work.done()) ADD_FAILURE() << "still in flight";
  });
}

TEST(SpawnRanks, rethrows_what_the_first_failing_rank_threw) {
  struct Special {};
  EXPECT_THROW(spawn_ranks(3,
                           [](Communicator& comm) {
                             if (comm.rank() == 1) throw Special();
                             comm.barrier();
                           }),
               Special);
  EXPECT_THROW(spawn_ranks(0, [](Communicator&) {}), UsageError);
}

}  // namespace
}  // namespace paceline
