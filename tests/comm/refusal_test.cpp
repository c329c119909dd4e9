// SPDX-License-Identifier: Apache-2.0
// Calls that cannot be made: harmless if every rank does the same, else all ranks hear of it.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <latch>
#include <string>
#include <vector>

#include "paceline/paceline.h"
#include "tests/comm/outcomes.h"

namespace paceline {
namespace {

using test::Outcome;
using test::outcomes;

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
  std::latch refused(1);  // until then the first call cannot end
  const auto all = outcomes(2, [&](Communicator& comm) {
    std::vector<float> data(100);
    if (comm.rank() == 0) {
      Work work = comm.allreduce_async(std::span(data), ReduceOp::kSum);
      EXPECT_THROW((void)comm.allreduce_async(std::span(data).subspan(50), ReduceOp::kSum),
                   UsageError);
      refused.count_down();
      work.wait();
    } else {
      refused.wait();
      comm.allreduce(std::span(data), ReduceOp::kSum);
    }
    comm.barrier();  // of rank 0 it is the third call, of rank 1 the second
  });
  EXPECT_EQ(all[0].code, CommErrc::kAborted) << all[0].text;
  EXPECT_EQ(all[1].code, CommErrc::kRefused) << all[1].text;
  for (const Outcome& outcome : all) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_NE(outcome.text.find("rank 0 refused call #1"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("still in flight"), std::string::npos) << outcome.text;
  }
}

TEST(Refusal, of_a_timeout_of_one_rank_is_never_paired_with_its_next_call) {
  for (const int world : {2, 3}) {
    const auto all = outcomes(world, [](Communicator& comm) {
      std::vector<float> data(100, 1.F);
      if (comm.rank() == 1) {
        EXPECT_THROW(comm.allreduce(std::span(data), ReduceOp::kSum,
                                    {.timeout = std::chrono::milliseconds(0)}),
                     UsageError);
      }
      comm.allreduce(std::span(data), ReduceOp::kSum);
      ADD_FAILURE() << "rank " << comm.rank() << " returned";
    });
    for (const Outcome& outcome : all) {
      ASSERT_TRUE(outcome.failed);
      EXPECT_NE(outcome.text.find("rank 1 refused call #0"), std::string::npos) << outcome.text;
      EXPECT_NE(outcome.text.find("a timeout of 0 ms"), std::string::npos) << outcome.text;
    }
    EXPECT_EQ(all[0].code, CommErrc::kRefused) << all[0].text;
  }
}

TEST(Refusal, of_pieces_that_overlap_each_other_reaches_the_peers) {
  const auto all = outcomes(2, [](Communicator& comm) {
    std::vector<float> data(100);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    std::vector<Piece> pieces{{bytes, 200}, {bytes + 200, 200}};
    if (comm.rank() == 1) pieces[1].data = bytes + 100;
    const Buffer buffer{Dtype::kF32, 100, pieces};
    const Call call{.what = Collective::kAllReduce, .count = 100};
    if (comm.rank() == 1) {
      EXPECT_THROW((void)comm.engine().start(call, buffer, buffer), UsageError);
    } else {
      comm.engine().start(call, buffer, buffer).wait();
    }
  });
  EXPECT_EQ(all[0].code, CommErrc::kRefused) << all[0].text;
  EXPECT_NE(all[0].text.find("pieces of the buffer overlap"), std::string::npos) << all[0].text;
}

TEST(Refusal, of_buffers_of_two_types) {
  spawn_ranks(1, [](Communicator& comm) {
    std::vector<double> data(10), out(10);
    const Piece in_piece{reinterpret_cast<std::byte*>(data.data()), 40};
    const Piece out_piece{reinterpret_cast<std::byte*>(out.data()), 80};
    EXPECT_THROW((void)comm.engine().start({.what = Collective::kAllReduce, .count = 10},
                                           {Dtype::kF32, 10, {&in_piece, 1}},
                                           {Dtype::kF64, 10, {&out_piece, 1}}),
                 UsageError);
  });
}

// Rank 1 makes `bad`, catches its UsageError and goes on with what the others do; no rank returns
// from what comes then, and each sees both sides.
void expect_error_of_all(const std::function<void(Communicator&)>& bad,
                         const std::function<void(Communicator&)>& good,
                         const std::string& one,
                         const std::string& other) {
  for (const int world : {2, 3, 5}) {
    const auto all = outcomes(world, [&](Communicator& comm) {
      if (comm.rank() == 1) {
        EXPECT_THROW(bad(comm), UsageError);
      }
      good(comm);
      for (int i = 0; i < 2; ++i) comm.barrier();
      ADD_FAILURE() << "rank " << comm.rank() << " returned";
    });
    for (const Outcome& outcome : all) {
      ASSERT_TRUE(outcome.failed);
      EXPECT_EQ(outcome.code, CommErrc::kMismatch) << outcome.text;
      EXPECT_NE(outcome.text.find(one), std::string::npos) << outcome.text;
      EXPECT_NE(outcome.text.find(other), std::string::npos) << outcome.text;
    }
  }
}

TEST(Usage, error_that_one_rank_makes_with_a_root_reaches_all) {
  for (const int root : {0, 1}) {  // of the others; rank 1 itself may be the one they wait for
    std::vector<std::vector<float>> data(5, std::vector<float>(100));
    expect_error_of_all([&](Communicator& comm) { comm.broadcast(std::span(data[1]), -1); },
                        [&](Communicator& comm) {
                          comm.broadcast(std::span(data[static_cast<std::size_t>(comm.rank())]),
                                         root);
                        },
                        "from -1", "from " + std::to_string(root));
  }
}

TEST(Usage, error_that_one_rank_makes_with_an_op_reaches_all) {
  std::vector<std::vector<std::int32_t>> data(5, std::vector<std::int32_t>(100));
  const auto reduce = [&](ReduceOp op) {
    return [&data, op](Communicator& comm) {
      comm.allreduce(std::span(data[static_cast<std::size_t>(comm.rank())]), op);
    };
  };
  expect_error_of_all(reduce(ReduceOp::kMean), reduce(ReduceOp::kSum), "mean", "sum");
}

TEST(Usage, error_that_one_rank_makes_with_an_algorithm_reaches_all) {
  std::vector<std::vector<float>> data(5, std::vector<float>(100));
  const auto reduce = [&](Algorithm algorithm) {
    return [&data, algorithm](Communicator& comm) {
      comm.allreduce(std::span(data[static_cast<std::size_t>(comm.rank())]), ReduceOp::kSum,
                     {.algorithm = algorithm});
    };
  };
  expect_error_of_all(reduce(Algorithm::kTree), reduce(Algorithm::kRing), "by tree", "by ring");
}

TEST(Usage, error_that_all_ranks_see_leaves_the_communicator_usable) {
  spawn_ranks(2, [](Communicator& comm) {
    std::vector<std::int32_t> data(10, 1);
    EXPECT_THROW(comm.allreduce(std::span(data), ReduceOp::kMean), UsageError);
    EXPECT_THROW(comm.broadcast(std::span(data), 2), UsageError);
    EXPECT_THROW(comm.broadcast(std::span(data), -1), UsageError);
    EXPECT_THROW(comm.allreduce(std::span(data), static_cast<ReduceOp>(17)), UsageError);
    EXPECT_THROW(comm.allreduce(std::span(data), ReduceOp::kSum, {.algorithm = Algorithm::kTree}),
                 UsageError);
    const Piece piece{reinterpret_cast<std::byte*>(data.data()), 40};
    const Buffer typeless{static_cast<Dtype>(77), 10, {&piece, 1}};
    for (const Collective what : {Collective::kAllReduce, Collective::kBroadcast}) {
      EXPECT_THROW((void)comm.engine().start({.what = what, .count = 10}, typeless, typeless),
                   UsageError);
    }
    comm.allreduce(std::span(data), ReduceOp::kSum);
    EXPECT_EQ(data[9], 2);
  });
}

}  // namespace
}  // namespace paceline
