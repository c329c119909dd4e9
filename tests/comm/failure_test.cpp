// SPDX-License-Identifier: Apache-2.0
// How a group ends: aborts, departures, timeouts, destruction; never in a hang.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "paceline/paceline.h"
#include "tests/comm/outcomes.h"

namespace paceline {
namespace {

using test::Outcome;
using test::outcomes;

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

TEST(Abandon, ends_every_rank_with_the_reason_and_lets_go_of_the_memory) {
  std::latch abandoned(1);
  const auto all = outcomes(2, [&](Communicator& comm) {
    auto data = std::make_shared<std::vector<float>>(100000);
    const std::weak_ptr<const void> memory = data;
    const Piece piece{reinterpret_cast<std::byte*>(data->data()), data->size() * sizeof(float)};
    const Buffer buffer{Dtype::kF32, data->size(), {&piece, 1}};
    Call call{.what = Collective::kAllReduce, .count = data->size(), .keeps = std::move(data)};
    if (comm.rank() == 0) {
      Work work = comm.engine().start(call, buffer, buffer);
      comm.engine().abandon("the wrapper is gone");
      abandoned.count_down();
      try {
        work.wait();
      } catch (const CommError&) {
        call.keeps.reset();
        EXPECT_TRUE(memory.expired());
        throw;
      }
    } else {
      abandoned.wait();  // or this rank's part could complete the sum
      comm.engine().start(call, buffer, buffer).wait();
    }
  });
  for (const Outcome& outcome : all) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_NE(outcome.text.find("rank 0: the wrapper is gone"), std::string::npos) << outcome.text;
  }
}

TEST(SpawnRanks, rethrows_what_is_not_a_consequence) {
  struct Special {};
  EXPECT_THROW(spawn_ranks(3,
                           [](Communicator& comm) {
                             if (comm.rank() == 1) throw Special();
                             comm.barrier();
                           }),
               Special);
  EXPECT_THROW(spawn_ranks(0, [](Communicator&) {}), UsageError);
}

TEST(SpawnRanks, rethrows_what_the_lowest_rank_threw_whoever_was_first) {
  struct OfRank {
    int rank;
  };
  std::latch first(1);
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == 0) comm.barrier();  // a consequence: CommError
    if (comm.rank() == 1) first.wait();
    if (comm.rank() == 2) first.count_down();
    throw OfRank{comm.rank()};
  };
  try {
    spawn_ranks(3, body);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const OfRank& failure) {
    EXPECT_EQ(failure.rank, 1);
  }
}

#if !defined(__SANITIZE_THREAD__)  // it ends children of processes with threads
TEST(ForkedChild, cannot_use_the_communicator_nor_end_its_parent_s_job) {
  for (const auto link : {LocalLink::kMemory, LocalLink::kShm, LocalLink::kTcp}) {
    spawn_ranks(2,
                [](Communicator& comm) {
                  comm.barrier();
                  if (comm.rank() == 0) {
                    const pid_t child = ::fork();
                    if (child == 0) {
                      bool good = false;
                      try {
                        comm.barrier();
                      } catch (const UsageError& error) {
                        good = std::string(error.what()).find("was forked") != std::string::npos;
                      }
                      comm.abort("nobody hears this");
                      { const Communicator mine = std::move(comm); }
                      ::_exit(good ? 0 : 1);
                    }
                    int status = -1;
                    EXPECT_EQ(::waitpid(child, &status, 0), child);
                    EXPECT_EQ(status, 0);
                  }
                  std::vector<float> data(1000, 1.F);
                  comm.allreduce(std::span(data), ReduceOp::kSum);
                  EXPECT_EQ(data.back(), 2.F);
                },
                {.link = link});
  }
}
#endif

}  // namespace
}  // namespace paceline
