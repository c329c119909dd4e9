// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/bench/exercise.h"
#include "apps/bench/futex_barrier.h"
#include "apps/bench/measure.h"
#include "apps/bench/options.h"
#include "apps/bench/pattern.h"
#include "apps/bench/report.h"
#include "apps/bench/step_options.h"
#include "apps/bench/step_report.h"
#include "apps/bench/yardsticks.h"
#include "paceline/base/error.h"
#include "paceline/comm/init.h"
#include "paceline/plan/schedule.h"
#include "paceline/sim/execute.h"
#include "tests/apps/command.h"

namespace paceline::apps {
namespace {

std::string error_of(const BenchWords& words) {
  try {
    (void)bench_options_from(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

void expect_error(const BenchWords& words, const std::string& text) {
  EXPECT_NE(error_of(words).find(text), std::string::npos) << error_of(words);
}

TEST(BenchOptions, read_sizes_with_units) {
  const auto options =
      bench_options_from({.what = "allreduce", .dtype = "bf16", .sizes = "6,4K,1M,2G"});
  EXPECT_EQ(options.sizes, (std::vector<std::uint64_t>{6, 4096, 1 << 20, std::uint64_t{2} << 30}));
  EXPECT_EQ(options.dtype, Dtype::kBF16);
}

TEST(BenchOptions, are_those_of_the_issue_unless_asked_otherwise) {
  const auto options = bench_options_from({.what = "allgather"});
  const std::uint64_t m = 1 << 20;
  EXPECT_EQ(options.sizes, (std::vector<std::uint64_t>{4096, 65536, m, 25 * m, 100 * m}));
  EXPECT_EQ(options.ranks, 2);
  EXPECT_EQ(options.link, BenchLink::kAuto);
  EXPECT_EQ(options.memory, BenchMemory::kResident);
}

TEST(BenchOptions, say_what_is_wrong_and_what_may_be) {
  expect_error({.what = "alltoall"},
               "paceline bench 'alltoall': must be allreduce, reduce_scatter, allgather, "
               "broadcast, barrier or futex");
  expect_error({.what = "allreduce", .ranks = 1}, "-n is 1: it must be from 2 to 64");
  expect_error({.what = "allreduce", .ranks = 65}, "-n is 65: it must be from 2 to 64");
  expect_error({.what = "allreduce", .link = "mpi"},
               "--link 'mpi': must be one of auto, shm, tcp, memory");
  expect_error({.what = "allreduce", .memory = ""},
               "--memory '': must be one of resident, private");
  expect_error({.what = "allreduce", .dtype = "f8"},
               "--dtype 'f8': must be one of f32, f64, f16, bf16, u8, i32, i64");
  expect_error({.what = "allreduce", .seconds = 0}, "--seconds is 0: it must be above 0");
  expect_error({.what = "futex", .link = "tcp"}, "--link tcp: a futex needs memory");
}

TEST(BenchOptions, refuse_sizes_that_are_none) {
  const auto sizes = [](const std::string& text) {
    return BenchWords{.what = "allreduce", .sizes = text};
  };
  expect_error(sizes("4K,"), "--sizes 4K,: '' must be a whole number; write it as in --sizes 4K");
  expect_error(sizes("4X"), "--sizes 4X: '4X' must be a whole number");
  expect_error(sizes("0"), "--sizes 0: '0' is not from 1 to 1024G");
  expect_error(sizes("1025G"), "'1025G' is not from 1 to 1024G");
  expect_error(sizes("99999999999999999999"), "is too large a number");
  expect_error(sizes("6"), "'6' is no whole number of f32 elements of 4 bytes");
  expect_error({.what = "barrier", .sizes = "4K"}, "--sizes 4K: a barrier moves no data");
}

TEST(BenchOptions, become_the_same_options_again) {
  const auto options = bench_options_from({.what = "broadcast",
                                           .ranks = 3,
                                           .link = "shm",
                                           .memory = "private",
                                           .dtype = "i64",
                                           .sizes = "8,1M",
                                           .seconds = 0.25});
  EXPECT_EQ(arguments_of(options),
            (std::vector<std::string>{"bench", "broadcast", "-n", "3", "--link", "shm", "--memory",
                                      "private", "--dtype", "i64", "--seconds", "0.25", "--sizes",
                                      "8,1048576"}));
}

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

TEST(BenchReport, gives_a_row_back_as_it_was_told) {
  BenchRow row{.bytes = 4096, .min_us = 1.5, .median_us = 2, .p99_us = 3, .roofline_us = 1.25};
  row.verified = true;
  row.repetitions = 7;
  row.segments = {{.us = 2, .memcpy_us = 1}};
  const BenchRow again = bench_row_from(text_of(row));
  EXPECT_EQ(text_of(again), text_of(row));
  EXPECT_EQ(again.roofline_us, 1.25);
  EXPECT_FALSE(again.memcpy_us);
  EXPECT_EQ(again.segments[0].memcpy_us, 1);
}

TEST(BenchReport, counts_what_each_rank_has_to_move) {
  const BenchRow row{.bytes = 8000, .median_us = 2};
  EXPECT_DOUBLE_EQ(algbw_GBps(row), 4);
  const auto bus = [&](const char* what) {
    return busbw_GBps(row, bench_options_from({.what = what, .ranks = 4}));
  };
  EXPECT_DOUBLE_EQ(bus("allreduce"), 6);
  EXPECT_DOUBLE_EQ(bus("reduce_scatter"), 3);
  EXPECT_DOUBLE_EQ(bus("allgather"), 3);
  EXPECT_DOUBLE_EQ(bus("broadcast"), 4);
}

TEST(BenchReport, says_why_ranks_share_no_memory) {
  const auto options = bench_options_from({.what = "barrier"});
  const BenchReport report{.link = "tcp", .link_reason = "rank 1 runs on another host"};
  EXPECT_NE(heading_of(options, report).find("no shared memory: rank 1 runs on another host\n"),
            std::string::npos);
  EXPECT_NE(json_of(report, options).find("rank 1 runs on another host"), std::string::npos);
}

TEST(BenchReport, shows_wrong_results) {
  const BenchRow row{.bytes = 4096, .median_us = 2, .verified = false};
  EXPECT_NE(line_of(row, bench_options_from({.what = "allreduce"})).find("WRONG RESULTS"),
            std::string::npos);
}

/// `paceline bench` as a user starts it: exit code 0, and the JSON that it writes.
nlohmann::json json_of_run(test::Texts arguments) {
  const test::Folder folder;
  const std::string file = folder.path() + "/bench.json";
  arguments.insert(arguments.begin(), "bench");
  arguments.insert(arguments.end(), {"--json", file, "--seconds", "0.01"});
  test::Command command(arguments);
  EXPECT_TRUE(command.finish().ok()) << command.error();
  EXPECT_TRUE(command.all_gone());
  EXPECT_EQ(command.error(), "");
  return nlohmann::json::parse(folder.read("bench.json"));
}

TEST(BenchCommand, times_processes_and_writes_what_the_issue_says) {
  const auto json = json_of_run(
      {"allreduce", "-n", "2", "--link", "tcp", "--sizes", "4K,256K", "--memory", "private"});
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["link"], "tcp");
  EXPECT_EQ(json["memory"], "private");
  EXPECT_GT(json["ready_ms"], 0);
  ASSERT_EQ(json["rows"].size(), 2U);
  const auto& row = json["rows"][1];
  EXPECT_EQ(row["bytes"], 256 << 10);
  EXPECT_EQ(row["dtype"], "f32");
  EXPECT_LE(row["us"]["min"], row["us"]["median"]);
  EXPECT_LE(row["us"]["median"], row["us"]["p99"]);
  EXPECT_NEAR(row["algbw_GBps"].get<double>(),
              (256 << 10) / (1e3 * row["us"]["median"].get<double>()), 1e-9);
  EXPECT_EQ(row["busbw_GBps"], row["algbw_GBps"]);  // 2(N-1)/N is 1
  EXPECT_TRUE(row["roofline_us"].is_null());
  EXPECT_GT(row["memcpy_us"], 0);
  EXPECT_EQ(row["verified"], true);
}

TEST(BenchCommand, finds_the_roofline_of_ranks_that_share_memory) {
  const auto json =
      json_of_run({"allreduce", "--link", "shm", "--sizes", "64K", "--dtype", "bf16"});
  EXPECT_EQ(json["link"], "shm");
  EXPECT_GT(json["rows"][0]["roofline_us"], 0);
  EXPECT_EQ(json["rows"][0]["verified"], true);
}

TEST(BenchCommand, times_threads) {
  const auto json = json_of_run({"futex", "-n", "3", "--link", "memory"});
  EXPECT_EQ(json["link"], "memory");
  EXPECT_EQ(json["what"], "futex");
  EXPECT_EQ(json["rows"][0]["verified"], true);
  EXPECT_TRUE(json["rows"][0]["dtype"].is_null());
}

TEST(StepReport, takes_the_mean_of_the_medians_of_four_stretches) {
  const std::vector<double> more{1, 5, 3, 7, 9, 8, 2, 2, 100, 0, 4, 4};
  std::vector<double> ddp(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) ddp[i] = 10 + more[i];
  StepFigures figures;
  figures.modes = {{.mode = StepMode::kLocal, .step_ms = std::vector<double>(more.size(), 10)},
                   {.mode = StepMode::kDdp, .step_ms = ddp}};
  EXPECT_EQ(overhead_ms(figures.modes[1], figures), (3 + 8 + 2 + 4) / 4.0);
  EXPECT_EQ(begin_of_stretch(0, 7), 0);
  EXPECT_EQ(begin_of_stretch(1, 7), 2);
  EXPECT_EQ(begin_of_stretch(3, 7), 6);
  EXPECT_EQ(begin_of_stretch(kStepStretches, 7), 7);
}

TEST(StepReport, has_no_overhead_without_local_and_survives_as_text) {
  const StepFigures figures{.link = "shm",
                            .link_reason = "",
                            .parameters = 8,
                            .tensors = 2,
                            .modes = {{.mode = StepMode::kLocal, .step_ms = {1, 9, 5}},
                                      {.mode = StepMode::kDdp, .step_ms = {4, 10, 7}}}};
  EXPECT_EQ(overhead_ms(figures.modes[1], figures), 2);  // 3, 1 and 2, one for each stretch
  EXPECT_EQ(overhead_ms(figures.modes[0], figures), 0);
  const StepFigures again = step_figures_from(text_of(figures));
  EXPECT_EQ(text_of(again), text_of(figures));
  StepFigures alone = figures;
  alone.modes.erase(alone.modes.begin());
  EXPECT_FALSE(overhead_ms(alone.modes[0], alone));
}

#ifdef PACELINE_STEP
TEST(BenchCommand, times_steps_of_training) {
  const test::Folder folder;
  const std::string file = folder.path() + "/step.json";
  test::Command command(
      {"bench", "step", "-n", "2", "--model", "cnn", "--steps", "3", "--json", file});
  EXPECT_TRUE(command.finish().ok()) << command.error();
  EXPECT_TRUE(command.all_gone());
  const auto json = nlohmann::json::parse(folder.read("step.json"));
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["model"], "cnn");
  EXPECT_EQ(json["parameters"], 1'199'882);
  EXPECT_EQ(json["rows"][0]["mode"], "local");
  const std::vector<std::string> modes{"local", "ddp", "shared"};
  ASSERT_EQ(json["rows"].size(), modes.size());
  for (std::size_t i = 1; i < modes.size(); ++i) {
    const auto& row = json["rows"][i];
    EXPECT_EQ(row["mode"], modes[i]);
    EXPECT_EQ(row["optimizer"], "sgd");
    EXPECT_LE(row["step_ms"]["min"], row["step_ms"]["median"]);
    EXPECT_TRUE(row["overhead_ms"].is_number());
    const std::int64_t in_place = row["bytes_in_place"], copied = row["bytes_copied"];
    EXPECT_EQ(in_place + copied, 4 * 1'199'882);
    EXPECT_GT(in_place, 99 * copied);
  }
}

TEST(BenchCommand, says_that_shared_steps_need_shared_memory) {
  test::Command command({"bench", "step", "-n", "2", "--model", "cnn", "--steps", "1"},
                        {"PACELINE_LINK=tcp"});
  EXPECT_FALSE(command.finish().ok());
  EXPECT_NE(command.error().find("leave it out: --mode local,ddp"), std::string::npos)
      << command.error();
}
#endif

TEST(BenchCommand, refuses_steps_that_cannot_be_taken) {
  test::expect_usage_error({"bench", "step", "-n", "0"}, "-n is 0: it must be from 1 to 64");
  test::expect_usage_error({"bench", "step", "--steps", "0"}, "--steps is 0: it must be from 1");
  test::expect_usage_error({"bench", "step", "--model", "lstm"},
                           "--model 'lstm': must be one of mlp, cnn, gpt, gpt-wide, many");
  test::expect_usage_error({"bench", "step", "--optimizer", "lion"},
                           "--optimizer 'lion': must be one of sgd, adam");
  test::expect_usage_error({"bench", "step", "--mode", "local,dp"},
                           "--mode local,dp: 'dp' must be one of local, ddp, shared");
  test::expect_usage_error({"bench", "step", "--mode", "ddp,ddp"}, "ddp stands there twice");
}

TEST(BenchCommand, refuses_before_any_rank_starts) {
  test::expect_usage_error({"bench"}, "what is required");
  test::expect_usage_error({"bench", "allreduce", "-n", "two"}, "-n two: must be a whole number");
  test::expect_usage_error({"bench", "allreduce", "--json", ""}, "--json is empty");
  test::Command command({"bench", "barrier", "--json", "/nowhere/at/all.json"});
  EXPECT_EQ(command.finish().code, 1);
  EXPECT_NE(command.error().find("/nowhere/at/all.json"), std::string::npos) << command.error();
}

TEST(BenchCommand, teaches_in_its_help) {
  test::Command command({"bench", "--help"});
  EXPECT_TRUE(command.finish().ok());
  for (const char* words : {"reduce_scatter", "--memory", "roofline", "paceline bench futex"}) {
    EXPECT_NE(command.output().find(words), std::string::npos) << words;
  }
  EXPECT_EQ(command.output().find("--rank-of"), std::string::npos);
}

}  // namespace
}  // namespace paceline::apps
