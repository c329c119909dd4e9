// SPDX-License-Identifier: Apache-2.0
// `paceline bench`: its options, and what it says of what it measured.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/measure.h"
#include "apps/bench/options.h"
#include "apps/bench/report.h"
#include "apps/bench/step_options.h"
#include "apps/bench/step_report.h"
#include "paceline/base/error.h"

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

}  // namespace
}  // namespace paceline::apps
