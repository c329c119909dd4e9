// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "folder.h"

namespace example::tests {
namespace {

Result two_ranks() {
  const RankFigures rank{.parameter_hash = 0xABCU,
                         .bytes_sent = 1'234'567,
                         .bytes_formula = 1'234'567,
                         .bytes_other = 89};
  return {.losses = {2.5, 1.25},
          .seconds = 2,
          .samples = 128,
          .test_accuracy = 0.875,
          .tested = 10'000,
          .ranks = {rank, rank}};
}

TEST(Report, json_has_exactly_the_promised_fields) {
  const auto root = nlohmann::json::parse(json(two_ranks()));
  EXPECT_EQ(root, nlohmann::json::parse(R"({
    "world_size": 2, "steps": 2, "losses": [2.5, 1.25], "test_accuracy": 0.875,
    "samples_per_s": 64.0, "parameter_hash": ["0000000000000abc", "0000000000000abc"],
    "bytes_sent": [1234567, 1234567], "bytes_formula": [1234567, 1234567],
    "bytes_other": [89, 89]})"));
}

TEST(Report, summary_shows_bytes_beside_the_formula_and_the_hash) {
  const std::string text = summary(two_ranks());
  expect_contains(text, "test accuracy 87.50 % of 10,000 images");
  expect_contains(text, "1,234,567            1,234,567               89  0000000000000abc");
  expect_contains(text, "all parameters are equal, to the bit, gradient bytes are as the formula");
}

TEST(Report, refuses_different_parameters_and_bytes) {
  Result result = two_ranks();
  EXPECT_NO_THROW(require_consistent(result));
  result.ranks[1].bytes_sent += 1;
  expect_contains(error_of([&] { require_consistent(result); }), "bytes");
  expect_contains(summary(result), "BYTES DIFFER");
  result.ranks[1].parameter_hash += 1;
  expect_contains(error_of([&] { require_consistent(result); }), "different parameters");
  expect_contains(summary(result), "PARAMETERS DIFFER");
}

TEST(Report, every_rank_gets_every_rank_s_figures) {
  const auto figures_of = [](std::uint64_t rank) {
    return RankFigures{.parameter_hash = ~rank,
                       .bytes_sent = 10 + rank,
                       .bytes_formula = 20 + rank,
                       .bytes_other = 30 + rank};
  };
  paceline::spawn_ranks(3, [&](paceline::Communicator& comm) {
    const auto all = gather(comm, figures_of(static_cast<std::uint64_t>(comm.rank())));
    EXPECT_EQ(all, (std::vector<RankFigures>{figures_of(0), figures_of(1), figures_of(2)}));
  });
}

TEST(Report, other_bytes_are_all_payload_and_headers_but_the_gradients) {
  paceline::spawn_ranks(2, [](paceline::Communicator& comm) {
    std::array<double, 100> values{};
    comm.allreduce<double>(values, paceline::ReduceOp::kSum, {.label = "a"});
    comm.allreduce<double>(values, paceline::ReduceOp::kSum, {.label = "b"});
    const paceline::Traffic a = comm.traffic().at("a");
    const paceline::Traffic b = comm.traffic().at("b");
    RankFigures figures{.bytes_sent = a.payload_bytes_sent};
    count_other_bytes(comm, figures);
    EXPECT_EQ(figures.bytes_other,
              a.header_bytes_sent + b.payload_bytes_sent + b.header_bytes_sent);
    EXPECT_GT(b.payload_bytes_sent, 0U);
  });
}

TEST(Report, introduction_tells_how_a_batch_is_shared) {
  const FashionMnist data{.folder = "somewhere",
                          .train = {.pixels = {}, .labels = std::vector<std::uint8_t>(60'000)},
                          .test = {}};
  const std::string text = introduction(Options{}, data, 3);
  expect_contains(text, "60,000 training");
  expect_contains(text, "from somewhere");
  expect_contains(text, "--batch-size 64: each of 3 ranks takes 22, together 66 per step");
}

}  // namespace
}  // namespace example::tests
