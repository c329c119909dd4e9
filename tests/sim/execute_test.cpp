// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/execute.h"

#include <gtest/gtest.h>

#include <ctime>
#include <numeric>

#include "paceline/base/error.h"

namespace paceline::sim {
namespace {

/// Rank r holds [10r, 10r+1, …].
template <Reducible T>
std::vector<std::vector<T>> tens(int world, int count) {
  std::vector<std::vector<T>> inputs;
  for (int r = 0; r < world; ++r) {
    auto& input = inputs.emplace_back();
    for (int e = 0; e < count; ++e) input.push_back(static_cast<T>(10 * r + e));
  }
  return inputs;
}

TEST(Execute, averages_four_ranks_in_a_ring_and_counts_12_elements_per_link) {
  const auto inputs = tens<float>(4, 8);
  const auto outcome =
      execute<float>(Algorithm::kRing, {.world = 4, .count = 8}, ReduceOp::kMean, inputs);
  for (const auto& result : outcome.results) {
    EXPECT_EQ(result, (std::vector<float>{15, 16, 17, 18, 19, 20, 21, 22}));
  }
  ASSERT_EQ(outcome.links.size(), 4U);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(
        outcome.links[static_cast<std::size_t>(r)],
        (LinkTraffic{.from = r, .to = (r + 1) % 4, .messages = 6, .elements = 12, .bytes = 48}));
  }
}

TEST(Execute, leaves_chunk_r_on_rank_r_after_reduce_scatter_and_gathers_it_again) {
  const plan::Shape scatter{.what = Collective::kReduceScatter, .world = 3, .count = 7};
  const auto chunks = execute<std::int64_t>(Algorithm::kPairwise, scatter, ReduceOp::kSum,
                                            tens<std::int64_t>(3, 7));
  EXPECT_EQ(chunks.results,
            (std::vector<std::vector<std::int64_t>>{{30, 33, 36}, {39, 42}, {45, 48}}));
  const plan::Shape gather{.what = Collective::kAllGather, .world = 3, .count = 7};
  const auto whole =
      execute<std::int64_t>(Algorithm::kRing, gather, ReduceOp::kSum, chunks.results);
  for (const auto& result : whole.results) {
    EXPECT_EQ(result, (std::vector<std::int64_t>{30, 33, 36, 39, 42, 45, 48}));
  }
}

TEST(Execute, needs_only_the_roots_input_for_a_broadcast) {
  std::vector<std::vector<double>> inputs(5);
  inputs[3] = {1, 2, 3};
  const plan::Shape shape{.what = Collective::kBroadcast, .world = 5, .root = 3, .count = 3};
  const auto outcome = execute<double>(Algorithm::kTree, shape, ReduceOp::kSum, inputs);
  for (const auto& result : outcome.results) EXPECT_EQ(result, inputs[3]);
}

TEST(Execute, calls_back_after_every_step_with_the_buffer_as_it_is) {
  std::vector<std::vector<double>> buffers;
  const auto after = [&](int rank, const plan::Step& step, std::span<const std::byte> buffer) {
    if (rank != 0 || step.kind != plan::Kind::kRecv) return;
    auto& copy = buffers.emplace_back(buffer.size() / sizeof(double));
    std::memcpy(copy.data(), buffer.data(), buffer.size());
  };
  const plan::Shape shape{.world = 3, .count = 3};
  (void)execute<double>(Algorithm::kRing, shape, ReduceOp::kSum, tens<double>(3, 3), after);
  EXPECT_EQ(buffers, (std::vector<std::vector<double>>{
                         {0, 22, 2}, {30, 22, 2}, {30, 22, 36}, {30, 33, 36}}));
}

TEST(Execute, runs_a_ring_of_1024_ranks_in_seconds) {
  const std::clock_t begin = std::clock();
  const auto outcome = execute<double>(Algorithm::kRing, {.world = 1024, .count = 8},
                                       ReduceOp::kMean, tens<double>(1024, 8));
  EXPECT_EQ(outcome.links.size(), 1024U);
  EXPECT_EQ(outcome.results[1023][7], 5.0 * 1023 + 7);
  EXPECT_LT(std::clock() - begin, 30 * CLOCKS_PER_SEC);  // of this process; sanitizers included
}

TEST(Execute, refuses_inputs_that_do_not_fit_and_means_of_integers) {
  const auto run = [](int world, int ranks, int count) {
    const auto n = static_cast<std::uint64_t>(count);
    (void)execute<float>(Algorithm::kRing, {.world = world, .count = n}, ReduceOp::kSum,
                         tens<float>(ranks, 4));
  };
  EXPECT_NO_THROW(run(2, 2, 4));
  EXPECT_THROW(run(2, 3, 4), UsageError);
  EXPECT_THROW(run(2, 2, 5), UsageError);
  EXPECT_THROW(run(0, 0, 4), UsageError);
  EXPECT_THROW((void)execute<std::int32_t>(Algorithm::kRing, {.world = 2, .count = 4},
                                           ReduceOp::kMean, tens<std::int32_t>(2, 4)),
               UsageError);
}

}  // namespace
}  // namespace paceline::sim
