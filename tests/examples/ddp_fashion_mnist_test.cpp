// SPDX-License-Identifier: Apache-2.0
// The example as a user starts it, on a small data set.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "folder.h"
#include "ranks.h"
#include "readme.h"
#include "small_data.h"

namespace example::tests {
namespace {

using Json = nlohmann::json;

class DdpFashionMnist : public testing::Test {
 protected:
  DdpFashionMnist() {
    write_part(data_.path(), "train", 1280);
    write_part(data_.path(), "t10k", 101);
  }

  [[nodiscard]] Ran run(int ranks, const Texts& more) const {
    Texts program{example_path("ddp_fashion_mnist"), "--data", data_.path().string()};
    program.insert(program.end(), more.begin(), more.end());
    return run_ranks(ranks, program);
  }

  /// What the run wrote as JSON.
  [[nodiscard]] Json figures(int ranks, Texts more) const {
    const std::string file = data_.file("figures.json");
    more.insert(more.end(), {"--json", file});
    const Ran ran = run(ranks, more);
    EXPECT_EQ(ran.code, 0) << ran.error;
    EXPECT_FALSE(std::filesystem::exists(file + ".partial"));
    return Json::parse(text_of(file));
  }

  /// Every rank says `words` and the command fails.
  void expect_failure(const Texts& more, const std::string& words) const {
    const Ran ran = run(2, more);
    EXPECT_EQ(ran.code, 1);
    expect_contains(ran.error, "error: ");
    expect_contains(ran.error, words);
    EXPECT_EQ(ran.output.find("step 1/"), std::string::npos) << "it trained before it failed";
  }

  Folder data_;
};

const Texts kShort{"--max-steps", "3", "--no-shuffle", "--seed", "1"};

TEST_F(DdpFashionMnist, ends_with_equal_parameters_and_the_bytes_of_the_formula) {
  const Json two = figures(2, kShort);
  EXPECT_EQ(two["world_size"], 2);
  EXPECT_EQ(two["steps"], 3);
  EXPECT_EQ(two["losses"].size(), 3U);
  EXPECT_EQ(two["parameter_hash"].size(), 2U);
  EXPECT_EQ(two["parameter_hash"][0], two["parameter_hash"][1]);
  EXPECT_EQ(two["bytes_sent"], two["bytes_formula"]);
  EXPECT_EQ(two["bytes_sent"], Json::array({3 * 4'799'528, 3 * 4'799'528}));
  EXPECT_GT(two["bytes_other"][0], 0);
  EXPECT_GT(two["samples_per_s"], 0);
}

TEST_F(DdpFashionMnist, has_the_same_losses_on_any_number_of_ranks) {
  const Json one = figures(1, kShort);
  EXPECT_EQ(one["bytes_sent"], Json::array({0}));
  EXPECT_EQ(one["bytes_other"], Json::array({0}));
  for (const int ranks : {2, 4}) {
    const Json many = figures(ranks, kShort);
    for (std::size_t step = 0; step < 3; ++step) {
      const double expected = one["losses"][step];
      EXPECT_NEAR(many["losses"][step], expected, 1e-4 * expected)
          << ranks << " ranks, step " << step;
    }
  }
}

TEST_F(DdpFashionMnist, repeats_to_the_bit_where_ranks_do_not_divide_the_batch) {
  const Json first = figures(3, kShort);
  const Json second = figures(3, kShort);
  EXPECT_EQ(first["parameter_hash"], second["parameter_hash"]);
  EXPECT_EQ(first["losses"], second["losses"]);
  EXPECT_EQ(first["parameter_hash"][0], first["parameter_hash"][2]);
  EXPECT_EQ(first["bytes_sent"], first["bytes_formula"]);
}

TEST_F(DdpFashionMnist, learns) {
  const Json figures_of_run = figures(2, {"--epochs", "2"});
  EXPECT_EQ(figures_of_run["steps"], 40);
  EXPECT_GT(figures_of_run["test_accuracy"], 0.9);
}

TEST_F(DdpFashionMnist, saves_the_trained_net_in_one_go) {
  const std::string file = data_.file("net.pt");
  Texts arguments = kShort;
  arguments.insert(arguments.end(), {"--save", file});
  EXPECT_EQ(run(2, arguments).code, 0);
  EXPECT_GT(std::filesystem::file_size(file), 4U * 1'199'882U);
  EXPECT_FALSE(std::filesystem::exists(file + ".partial"));
}

TEST_F(DdpFashionMnist, refuses_bad_input_before_it_trains) {
  expect_failure({"--batch-size", "0"}, "--batch-size is 0");
  expect_failure({"--batch-size", "99999999999"}, "there are only");
  expect_failure({"--rocket"}, "--rocket");
  expect_failure({"--json", data_.file("none/a.json")}, "none/a.json");
  expect_failure({"--save", data_.path().string()}, data_.path().string());
  cut(data_.file("train-images-idx3-ubyte.gz"), 100);
  expect_failure({}, data_.file("train-images-idx3-ubyte.gz"));
}

TEST_F(DdpFashionMnist, stops_when_the_loss_explodes) {
  const Ran ran = run(2, {"--lr", "1e30"});
  EXPECT_EQ(ran.code, 1);
  expect_contains(ran.error, "try a smaller --lr");
}

/// What differs from machine to machine, and between the data here and in the README, as #.
std::vector<std::string> without_measures(std::vector<std::string> lines) {
  const std::vector<std::pair<std::regex, const char*>> measures{
      {std::regex("from .*"), "from #"},
      {std::regex("[0-9,]+ (training|test) "), "# $1 "},
      {std::regex("test of [0-9,]+"), "test of #"},
      {std::regex("loss [0-9.]+"), "loss #"},
      {std::regex("in [0-9.]+ s"), "in # s"},
      {std::regex("[0-9]+ samples/s"), "# samples/s"},
      {std::regex("ETA [0-9:]+"), "ETA #"},
      {std::regex("accuracy [0-9.]+ % of [0-9,]+"), "accuracy # % of #"},
      {std::regex(" +[0-9,]+  [0-9a-f]{16}$"), " # #"}};
  for (std::string& line : lines) {
    for (const auto& [pattern, replacement] : measures)
      line = std::regex_replace(line, pattern, replacement);
  }
  return lines;
}

TEST_F(DdpFashionMnist, prints_what_its_readme_promises) {
  write_part(data_.path(), "train", 1920);  // 30 steps in one epoch
  const Promise promise = read_promise("03_ddp_fashion_mnist");
  EXPECT_EQ(promise.program, "ddp_fashion_mnist");
  const Ran ran = run(promise.ranks, promise.arguments);
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.error, "");
  EXPECT_EQ(without_measures(lines_of(ran.output)), without_measures(promise.lines));
}

}  // namespace
}  // namespace example::tests
