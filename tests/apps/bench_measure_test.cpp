// SPDX-License-Identifier: Apache-2.0
// `paceline bench`: its data, its exercises and its yardsticks, on ranks that are threads.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/bench/exercise.h"
#include "apps/bench/futex_barrier.h"
#include "apps/bench/measure.h"
#include "apps/bench/options.h"
#include "apps/bench/pattern.h"
#include "apps/bench/yardsticks.h"
#include "paceline/base/error.h"
#include "paceline/comm/init.h"
#include "paceline/plan/schedule.h"
#include "paceline/sim/execute.h"

namespace paceline::apps {
namespace {

constexpr Dtype kTypes[] = {Dtype::kF32, Dtype::kF64, Dtype::kF16, Dtype::kBF16,
                            Dtype::kU8,  Dtype::kI32, Dtype::kI64};

TEST(BenchPattern, is_what_the_simulator_sums_call_after_call) {
  constexpr std::uint64_t kCount = 11;
  for (const Dtype dtype : kTypes) {
    for (const int world : {2, 3, 4, 7, 8}) {
      const plan::Shape shape{
          .what = Collective::kAllReduce, .rank = 0, .world = world, .count = kCount};
      std::vector<std::vector<std::byte>> buffers;
      for (int rank = 0; rank < world; ++rank) {
        buffers.emplace_back(kCount * size_of(dtype));
        pattern_of_rank(dtype, rank).fill(buffers.back(), 0);
      }
      const int calls = exact_calls(dtype, world, 9);
      for (int i = 1; i <= calls; ++i) {
        const std::vector<std::span<const std::byte>> inputs(buffers.begin(), buffers.end());
        buffers =
            sim::execute_untyped(Algorithm::kRing, shape, dtype, ReduceOp::kSum, inputs).results;
        for (const auto& buffer : buffers) {
          EXPECT_FALSE(pattern_of_sum(dtype, world, i).difference(buffer, 0))
              << name_of(dtype) << " on " << world << ", call " << i;
        }
      }
    }
  }
}

TEST(BenchPattern, knows_how_many_sums_stay_exact) {
  EXPECT_EQ(exact_calls(Dtype::kF32, 2, 32), 32);
  EXPECT_EQ(exact_calls(Dtype::kBF16, 8, 32), 32);
  EXPECT_EQ(exact_calls(Dtype::kI32, 7, 32), 32);
  EXPECT_EQ(exact_calls(Dtype::kF16, 2, 32), 14);    // 3 * 2^13 and 4 * 2^13 < 65504
  EXPECT_EQ(exact_calls(Dtype::kBF16, 3, 32), 5);    // 486 = 243 * 2 has 8 bits, 729 has 10
  EXPECT_EQ(exact_calls(Dtype::kBF16, 64, 32), 21);  // 129 * 64^20 < 2^128
}

TEST(BenchPattern, finds_a_wrong_byte_wherever_it_is) {
  std::vector<std::byte> data(40'001);
  const Pattern pattern = pattern_of_rank(Dtype::kU8, 1);
  pattern.fill(data, 2);
  EXPECT_FALSE(pattern.difference(data, 2));
  EXPECT_TRUE(pattern.difference(data, 3));
  for (const std::size_t at : {std::size_t{0}, std::size_t{20'000}, std::size_t{40'000}}) {
    data[at] ^= std::byte{1};
    EXPECT_EQ(pattern.difference(data, 2), at);
    data[at] ^= std::byte{1};
  }
}

TEST(BenchQuantile, is_a_value_that_was_there) {
  std::vector<double> values;
  for (int i = 1; i <= 200; ++i) values.push_back(i);
  EXPECT_EQ(quantile(values, 0.5), 100);
  EXPECT_EQ(quantile(values, 0.99), 198);
  EXPECT_EQ(quantile({7}, 0.99), 7);
}

/// Every exercise on ranks that are threads: right results, and rows that make sense.
TEST(BenchMeasure, verifies_each_collective_in_each_type) {
  for (const char* what : {"allreduce", "reduce_scatter", "allgather", "broadcast", "barrier"}) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kI64}) {
      const auto options = bench_options_from({.what = what, .ranks = 3});
      BenchOptions typed = options;
      typed.dtype = dtype;
      spawn_ranks(3, [&](Communicator& comm) {
        const Exercise exercise = make_collective(comm, typed, 56);
        const BenchRow row = measure(comm, exercise, {}, 0.005);
        EXPECT_TRUE(row.verified) << what << " of " << name_of(dtype);
        EXPECT_LE(row.min_us, row.median_us);
        EXPECT_LE(row.median_us, row.p99_us);
        EXPECT_GE(row.repetitions, 5);
      });
    }
  }
}

TEST(BenchMeasure, says_so_when_one_rank_has_a_wrong_result) {
  spawn_ranks(2, [](Communicator& comm) {
    const auto options = bench_options_from({.what = "allreduce"});
    Exercise exercise = make_collective(comm, options, 64);
    if (comm.rank() == 1) {
      exercise.call = [call = exercise.call, out = exercise.out] {
        call();
        out.span()[63] ^= std::byte{1};
      };
    }
    EXPECT_FALSE(measure(comm, exercise, {}, 0.001).verified);
  });
}

TEST(BenchMeasure, notices_a_barrier_that_lets_a_rank_pass) {
  spawn_ranks(2, [](Communicator& comm) {
    Exercise open{.call = [] {}, .most_calls = 32, .all_meet = true};
    if (comm.rank() == 1) {
      open.call = [] {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
        while (std::chrono::steady_clock::now() < end) continue;
      };
    }
    EXPECT_FALSE(measure(comm, open, {}, 0.001).verified);
  });
}

TEST(BenchMeasure, times_its_yardsticks_in_turns) {
  spawn_ranks(2, [](Communicator& comm) {
    const Exercise exercise{.call = [&comm] { comm.barrier(); }, .all_meet = true};
    int runs = 0;
    const BenchRow row = measure(comm, exercise, {.roofline = [&] { ++runs; }, .copy = {}}, 0.001);
    EXPECT_GT(runs, 5);
    EXPECT_EQ(row.segments.size(), 5U);
    EXPECT_TRUE(row.roofline_us);
    EXPECT_FALSE(row.memcpy_us);
  });
}

TEST(BenchYardsticks, do_the_work_of_the_collective_without_waiting) {
  for (const char* what : {"allreduce", "reduce_scatter", "allgather", "broadcast"}) {
    const auto run = [&](Communicator& comm) {
      const auto options = bench_options_from({.what = what, .ranks = 3, .link = "shm"});
      const Exercise exercise = make_collective(comm, options, 400);
      const Yardsticks yardsticks = make_yardsticks(comm, options, exercise, 400);
      ASSERT_TRUE(yardsticks.roofline && yardsticks.copy) << what;
      exercise.prepare();
      comm.barrier();
      yardsticks.roofline();
      comm.barrier();
      EXPECT_FALSE(exercise.check(1)) << what;
    };
    spawn_ranks(3, run, {.link = LocalLink::kShm});
  }
}

TEST(BenchYardsticks, have_no_roofline_where_ranks_share_no_memory) {
  const auto none = [](BenchWords words) {
    return [words](Communicator& comm) {
      const auto options = bench_options_from(words);
      const Exercise exercise = make_collective(comm, options, 400);
      EXPECT_FALSE(make_yardsticks(comm, options, exercise, 400).roofline);
    };
  };
  spawn_ranks(2, none({.what = "allreduce"}), {.link = LocalLink::kTcp});
  spawn_ranks(2, none({.what = "allreduce", .memory = "private"}), {.link = LocalLink::kShm});
}

TEST(FutexBarrier, lets_nobody_leave_before_all_have_come) {
  spawn_ranks(3, [](Communicator& comm) {
    const auto options = bench_options_from({.what = "futex", .ranks = 3, .link = "memory"});
    EXPECT_TRUE(measure(comm, make_futex_barrier(comm, options), {}, 0.01).verified);
  });
}

TEST(FutexBarrier, works_in_memory_that_each_rank_maps_for_itself) {
  const auto run = [](Communicator& comm) {
    const auto options = bench_options_from({.what = "futex", .ranks = 2, .link = "shm"});
    EXPECT_TRUE(measure(comm, make_futex_barrier(comm, options), {}, 0.01).verified);
  };
  spawn_ranks(2, run, {.link = LocalLink::kShm});
}

TEST(FutexBarrier, needs_memory_that_ranks_share) {
  const auto options = bench_options_from({.what = "futex"});
  const auto run = [&](Communicator& comm) { (void)make_futex_barrier(comm, options); };
  EXPECT_THROW(spawn_ranks(2, run, {.link = LocalLink::kTcp}), UsageError);
}

}  // namespace
}  // namespace paceline::apps
