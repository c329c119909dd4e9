// SPDX-License-Identifier: Apache-2.0
// Several collectives in flight: issue order is shared, the order of waiting is everybody's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "paceline/paceline.h"
#include "tests/comm/samples.h"
#include "tests/cpu_time.h"

namespace paceline {
namespace {

TEST(Async, calls_in_flight_may_be_awaited_in_any_order) {
  constexpr int kCalls = 12;
  for (const int world : {2, 3, 5, 8}) {
    for (int round = 0; round < 4; ++round) {
      spawn_ranks(world,
                  [&](Communicator& comm) {
                    std::vector<std::vector<float>> data;
                    std::vector<Work> works;
                    for (int k = 0; k < kCalls; ++k) {
                      data.emplace_back(static_cast<std::size_t>(1 + 997 * k % 3000),
                                        static_cast<float>(comm.rank() + k));
                    }
                    for (auto& d : data)
                      works.push_back(comm.allreduce_async(std::span(d), ReduceOp::kSum));
                    std::vector<std::size_t> order(kCalls);
                    std::iota(order.begin(), order.end(), 0U);
                    std::shuffle(order.begin(), order.end(),
                                 std::mt19937(static_cast<unsigned>(comm.rank() * 31 + round)));
                    for (const std::size_t k : order) {
                      works[k].wait();
                      EXPECT_TRUE(works[k].done());
                      const auto want =
                          static_cast<float>(world * (world - 1) / 2 + world * static_cast<int>(k));
                      for (const float x : data[k]) ASSERT_EQ(x, want);
                    }
                  },
                  {.link_capacity_bytes = 512, .segment_bytes = 256});
    }
  }
}

TEST(Async, different_collectives_mix) {
  for (const int world : {2, 4, 7}) {
    spawn_ranks(world, [&](Communicator& comm) {
      const auto rank = static_cast<float>(comm.rank());
      for (int round = 0; round < 20; ++round) {
        std::vector<float> sum(1003, rank), sent(500, rank), small{rank};
        std::vector<float> shard(comm.shard(1001).size(), rank), all(1001);
        Work a = comm.allreduce_async(std::span(sum), ReduceOp::kMax);
        Work b = comm.broadcast_async(std::span(sent), world - 1);
        Work c = comm.allgather_async(std::span<const float>(shard), std::span(all));
        Work d = comm.barrier_async();
        Work e = comm.allreduce_async(std::span(small), ReduceOp::kSum);
        e.wait();
        d.wait();
        c.wait();
        b.wait();
        a.wait();
        EXPECT_EQ(sum[500], static_cast<float>(world - 1));
        EXPECT_EQ(sent[499], static_cast<float>(world - 1));
        EXPECT_EQ(all.back(), static_cast<float>(world - 1));
        EXPECT_EQ(all.front(), 0.F);
        EXPECT_EQ(small[0], static_cast<float>(world * (world - 1) / 2));
      }
    });
  }
}

// A flag that came with an earlier call must not be looked for on a link that has closed since.
TEST(Async, a_rank_may_leave_while_others_are_still_in_its_last_barrier) {
  for (int round = 0; round < 200; ++round) {
    spawn_ranks(4, [](Communicator& comm) {
      std::vector<float> small{1.F};
      Work barrier = comm.barrier_async();
      Work sum = comm.allreduce_async(std::span(small), ReduceOp::kSum);
      sum.wait();
      barrier.wait();
    });
  }
}

TEST(Async, progress_thread_finishes_what_nobody_waits_for) {
  spawn_ranks(3, [](Communicator& comm) {
    std::vector<double> data(100000, 1.0);
    const Work work = comm.allreduce_async(std::span(data), ReduceOp::kSum);
    while (!work.done()) std::this_thread::yield();
    EXPECT_EQ(data.back(), 3.0);
  });
}

TEST(Async, two_threads_may_wait_for_different_calls) {
  spawn_ranks(2, [](Communicator& comm) {
    for (int round = 0; round < 50; ++round) {
      std::vector<float> a(20000, 1.F), b(20000, 2.F);
      Work first = comm.allreduce_async(std::span(a), ReduceOp::kSum);
      Work second = comm.allreduce_async(std::span(b), ReduceOp::kSum);
      std::jthread other([&] { second.wait(); });
      first.wait();
      other.join();
      EXPECT_EQ(a[0] + b[0], 6.F);
    }
  });
}

TEST(Async, many_large_calls_drain_over_tcp) {
  spawn_ranks(3,
              [](Communicator& comm) {
                std::vector<std::vector<float>> data(6, std::vector<float>(400000, 1.F));
                std::vector<Work> works;
                for (auto& d : data)
                  works.push_back(comm.allreduce_async(std::span(d), ReduceOp::kSum));
                for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
                for (const auto& d : data) EXPECT_EQ(d.back(), 3.F);
              },
              {.link = LocalLink::kTcp});
}

TEST(Async, three_hundred_calls_may_be_in_flight) {
  std::latch rank_0_has_issued(1);
  spawn_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) rank_0_has_issued.wait();
    std::vector<std::vector<float>> data(300, std::vector<float>(10, 1.F));
    std::vector<Work> works;
    for (auto& d : data) works.push_back(comm.allreduce_async(std::span(d), ReduceOp::kSum));
    if (comm.rank() == 0) rank_0_has_issued.count_down();
    for (Work& work : works) work.wait();
    EXPECT_EQ(data[299][9], 2.F);
  });
}

TEST(Async, the_others_calls_go_on_when_a_waiter_has_its_own_result) {
  for (int round = 0; round < 100; ++round) {
    spawn_ranks(2, [](Communicator& comm) {
      std::vector<float> a(3000, 1.F), b(30000, 1.F);
      Work first = comm.allreduce_async(std::span(a), ReduceOp::kSum);
      const Work second = comm.allreduce_async(std::span(b), ReduceOp::kSum);
      first.wait();
      while (!second.done()) std::this_thread::yield();
      EXPECT_EQ(b.back(), 2.F);
    });
  }
}

/// A sum over `data` that nobody moves but its caller.
Work start_by_caller(Communicator& comm,
                     std::vector<float>& data,
                     std::chrono::milliseconds timeout = kDefaultTimeout) {
  const Piece piece{reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float)};
  const Buffer buffer{Dtype::kF32, data.size(), {&piece, 1}};
  return comm.engine().start({.what = Collective::kAllReduce,
                              .count = data.size(),
                              .label = "by caller",
                              .timeout = timeout,
                              .progress = Progress::kCaller},
                             buffer, buffer);
}

constexpr LocalLink kAllLinks[] = {LocalLink::kMemory, LocalLink::kTcp, LocalLink::kShm};

TEST(Async, advance_finishes_calls_that_nobody_waits_for_and_never_waits_itself) {
  for (const LocalLink link : kAllLinks) {
    std::latch alone_advanced(1);
    spawn_ranks(3,
                [&](Communicator& comm) {
                  comm.engine().advance();  // with nothing in flight
                  if (comm.rank() != 0) alone_advanced.wait();
                  std::vector<float> data(20000, 1.F);
                  const Work work = start_by_caller(comm, data);
                  comm.engine().advance();
                  if (comm.rank() == 0) {
                    EXPECT_FALSE(work.done());  // the others have not begun
                    alone_advanced.count_down();
                  }
                  while (!work.done()) {
                    comm.engine().advance();
                    std::this_thread::yield();
                  }
                  EXPECT_EQ(data, std::vector<float>(20000, 3.F));
                },
                {.link = link});
  }
}

TEST(Async, advance_takes_nothing_from_the_progress_thread) {
  for (const LocalLink link : kAllLinks) {
    spawn_ranks(2,
                [](Communicator& comm) {
                  for (int round = 0; round < 50; ++round) {
                    std::vector<float> data(20000, 1.F);
                    const Work work = comm.allreduce_async(std::span(data), ReduceOp::kSum);
                    comm.engine().advance();  // often before the thread has woken
                    while (!work.done()) std::this_thread::yield();
                    ASSERT_EQ(data[0], 2.F);
                  }
                },
                {.link = link});
  }
}

TEST(Async, leaves_errors_of_calls_that_it_advanced_to_those_who_wait) {
  std::latch both_started(2);
  spawn_ranks(2, [&](Communicator& comm) {
    std::vector<float> data(20000, 1.F);
    Work work = start_by_caller(comm, data);
    both_started.arrive_and_wait();
    if (comm.rank() == 1) comm.abort("rank 1 has had enough");
    while (!work.done()) comm.engine().advance();
    EXPECT_THROW(work.wait(), CommError);
  });
}

// Sleeps, since what passes is time: nobody is synchronised by them. However late a rank wakes, the
// other one has the whole timeout from where it waits.
TEST(Async, time_in_which_nobody_advances_a_call_is_no_stall) {
  spawn_ranks(2, [](Communicator& comm) {
    constexpr std::chrono::milliseconds kTimeout(2000), kMoment(100);
    std::vector<float> a(20000, 1.F), b(20000, 1.F);
    // Rank 0 waits for rank 1 in each call, and computes in between for longer than its timeout.
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(kMoment);
      comm.allreduce(std::span(a), ReduceOp::kSum, {.label = "by caller"});
      std::this_thread::sleep_for(kTimeout + 2 * kMoment);
      comm.allreduce(std::span(b), ReduceOp::kSum, {.label = "by caller"});
      return;
    }
    Work first = start_by_caller(comm, a, kTimeout);
    Work second = start_by_caller(comm, b, kTimeout);
    first.wait();
    std::this_thread::sleep_for(kTimeout + kMoment);
    comm.engine().advance();  // to look in does not end the excuse
    EXPECT_NO_THROW(second.wait());
    EXPECT_EQ(b[0], 2.F);
  });
}

// Whoever waits longer than the spin sleeps, and nothing but its own timeout wakes it.
TEST(Async, a_rank_that_waits_uses_less_than_1_percent_of_a_core) {
  constexpr std::chrono::milliseconds kTimeout(1000);
  for (const LocalLink link : kAllLinks) {
    std::latch waited(1);
    spawn_ranks(2,
                [&](Communicator& comm) {
                  if (comm.rank() == 1) return waited.wait();
                  std::vector<float> data(20000, 1.F);
                  Work work = start_by_caller(comm, data, kTimeout);
                  const auto before = thread_cpu_time();
                  EXPECT_THROW(work.wait(), CommError);
                  EXPECT_LT(thread_cpu_time() - before, kTimeout / 100);
                  waited.count_down();
                },
                {.link = link});
  }
}

TEST(Async, an_endless_timeout_is_legal) {
  spawn_ranks(2, [](Communicator& comm) {
    std::vector<float> data(10, 1.F);
    comm.allreduce(std::span(data), ReduceOp::kSum, {.timeout = std::chrono::milliseconds::max()});
    EXPECT_EQ(data[0], 2.F);
  });
}

TEST(Async, an_empty_call_still_keeps_step) {
  spawn_ranks(4, [](Communicator& comm) {
    std::vector<float> none;
    Work work = comm.allreduce_async(std::span(none), ReduceOp::kSum, {.label = "none"});
    work.wait();
    EXPECT_GT(comm.traffic().at("none").messages_sent, 0U);
  });
}

}  // namespace
}  // namespace paceline
