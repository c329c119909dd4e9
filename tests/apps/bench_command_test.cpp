// SPDX-License-Identifier: Apache-2.0
// `paceline bench` as a user starts it.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/apps/command.h"

namespace paceline::apps {
namespace {

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
