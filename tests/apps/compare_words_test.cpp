// SPDX-License-Identifier: Apache-2.0
// What a comparison says: conclusion, table, JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/compare/comparison_json.h"
#include "apps/compare/comparison_text.h"
#include "apps/compare/words.h"
#include "tests/apps/compare_sample.h"

namespace paceline::apps {
namespace {

Comparison sample_comparison() { return compare(sample::options({2, 3}), sample::measurements()); }

/// The sample, with the run at `place` the fastest.
Comparison with_winner(std::size_t place) {
  Comparison comparison = sample_comparison();
  comparison.runs[place].step_ms.median = 10;
  return comparison;
}

bool holds(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(Verdict, names_whoever_was_fastest) {
  EXPECT_TRUE(holds(verdict_of(with_winner(0)), "with one process on one thread"));
  EXPECT_TRUE(holds(verdict_of(with_winner(1)), "with one process on all cores"));
  EXPECT_TRUE(holds(verdict_of(with_winner(2)), "with DataParallel on 2 devices"));
  EXPECT_TRUE(holds(verdict_of(with_winner(5)), "with DistributedDataParallel on 3 ranks"));
}

TEST(Verdict, is_made_of_the_figures) {
  const std::string text = verdict_of(sample_comparison());
  EXPECT_TRUE(holds(text, "400 numbers/s"))
      << text;  // 12 in 30 ms: 28 and two for the slowest rank
  EXPECT_TRUE(holds(text, "1.40 times as fast as DP, 3 devices")) << text;
  EXPECT_TRUE(holds(text, "2.00 times as fast as one thread")) << text;
  EXPECT_TRUE(holds(text, "waits 2.0 ms for buckets that backward does not hide")) << text;
  EXPECT_TRUE(holds(text, "DP copies parameters and gradients for 4.0 ms")) << text;
}

TEST(Verdict, calls_a_draw_a_draw) {
  Comparison comparison = with_winner(2);
  comparison.runs[3].step_ms.median = 10.1;
  EXPECT_TRUE(holds(verdict_of(comparison), "1.01 times as fast as DDP, 2 ranks (a draw)"));
}

TEST(Table, has_the_four_dimensions_and_fills_every_cell) {
  const auto table = table_of(sample_comparison());
  ASSERT_EQ(table.size(), 4U);
  EXPECT_EQ(table[0].dimension, "process model");
  EXPECT_EQ(table[1].dimension, "gradient path");
  EXPECT_EQ(table[2].dimension, "performance");
  EXPECT_EQ(table[3].dimension, "scale");
  for (const TableSection& section : table) {
    for (const TableRow& row : section.rows) {
      EXPECT_FALSE(row.dp.empty()) << row.what;
      EXPECT_FALSE(row.ddp.empty()) << row.what;
    }
  }
  EXPECT_EQ(table[0].rows[0].ddp, "N=2: 2; N=3: 3");
}

TEST(Table, tells_rank_0_from_the_others) {
  Comparison comparison = sample_comparison();
  comparison.runs[3].traffic.participants = {{.sent = 1'000'000}, {.sent = 2'000'000}};
  comparison.runs[5].traffic.participants = {{}, {.sent = 3'000'000}, {.sent = 4'000'000}};
  const auto rows = table_of(comparison)[1].rows;
  EXPECT_EQ(rows[1].ddp, "N=2: 1.00 MB; N=3: 0.00 MB");
  EXPECT_EQ(rows[2].ddp, "N=2: 2.00 MB; N=3: 4.00 MB");
}

TEST(Table, promises_a_ring_only_where_there_is_one) {
  auto measurements = sample::measurements();
  for (Measurement& one : measurements) {
    for (auto& process : one.processes) {
      for (auto& bucket : process.buckets) bucket.algorithm = Algorithm::kOneStage;
    }
  }
  const auto table = table_of(compare(sample::options({2, 3}), measurements));
  EXPECT_TRUE(holds(table[1].rows[3].ddp, "not every bucket goes round a ring"));
  EXPECT_TRUE(holds(table[3].rows[1].ddp, "depends on each bucket's algorithm"));
  EXPECT_TRUE(holds(table_of(sample_comparison())[3].rows[1].ddp, "all but constant"));
}

TEST(Notes, tell_of_a_machine_that_was_busy) {
  const auto notes = [](double load) {
    return notes_of(compare(sample::options({2, 3}), sample::measurements(), load));
  };
  EXPECT_EQ(notes(1e6).size(), notes(0).size() + 1);
  EXPECT_TRUE(holds(notes(1e6).back(), "busy before this began (load 1000000.0"));
}

TEST(Megabytes, have_three_digits_and_a_unit) {
  EXPECT_EQ(megabytes(9'599'056), "9.60 MB");
  EXPECT_EQ(megabytes(28'797'168), "28.8 MB");
  EXPECT_EQ(megabytes(9'819'000'000), "9.82 GB");
}

TEST(Text, keeps_to_the_width_of_the_terminal) {
  std::istringstream lines(text_of(sample_comparison(), 80));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 84U) << line;
}

TEST(Text, shouts_when_losses_differ) {
  Comparison comparison = sample_comparison();
  comparison.losses_agree = false;
  EXPECT_TRUE(holds(text_of(comparison, 100), "THE LOSSES DO NOT AGREE"));
}

TEST(Json, has_the_promised_fields) {
  const Origin origin{
      .version = "0.1.0", .command = "paceline compare", .made = "2026-01-01T00:00:00Z"};
  const auto json = nlohmann::json::parse(json_of(sample_comparison(), origin));
  EXPECT_TRUE(json.at("losses_agree").get<bool>());
  EXPECT_EQ(json.at("verdict"), verdict_of(sample_comparison()));
  const auto& dp = json.at("runs").at(2);
  EXPECT_EQ(dp.at("mechanism"), "dp");
  EXPECT_EQ(dp.at("bytes").at("busiest"), 80);
  EXPECT_EQ(dp.at("bytes").at("others"), nlohmann::json({80}));
  EXPECT_EQ(dp.at("formula").at("M"), 40);
  const auto& ddp = json.at("runs").at(5);
  EXPECT_EQ(ddp.at("ranks"), 3);
  EXPECT_EQ(ddp.at("bytes").at("others").size(), 2U);
  EXPECT_EQ(ddp.at("bytes").at("per_link"), ddp.at("formula").at("per_link"));
  EXPECT_EQ(ddp.at("overlap"), 0.5);
  EXPECT_EQ(ddp.at("processes"), 3);
  EXPECT_EQ(ddp.at("final_loss"), 1.0);
  EXPECT_TRUE(ddp.at("step_ms").contains("p90"));
  EXPECT_TRUE(json.at("runs").at(0).at("overlap").is_null());
  EXPECT_EQ(json.at("ring").at("steps").size(), 4U);
  EXPECT_TRUE(json.at("traffic").at(3).at("dp").at("measured").is_null());
}

}  // namespace
}  // namespace paceline::apps
