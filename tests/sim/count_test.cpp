// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/count.h"

#include <gtest/gtest.h>

#include <ctime>

#include "paceline/base/error.h"
#include "paceline/plan/cost.h"

namespace paceline::sim {
namespace {

TEST(Count, of_a_ring_has_one_link_per_rank_and_the_formulas_bytes) {
  const plan::Shape shape{.world = 5, .count = 1003};
  const auto links = count(Algorithm::kRing, shape, Dtype::kBF16);
  ASSERT_EQ(links.size(), 5U);
  for (const LinkTraffic& link : links) {
    plan::Shape sender = shape;
    sender.rank = link.from;
    EXPECT_EQ(link.to, (link.from + 1) % 5);
    EXPECT_EQ(link.messages, 8U);
    EXPECT_EQ(link.bytes, plan::formula_bytes_sent(Algorithm::kRing, sender, Dtype::kBF16));
  }
}

TEST(Count, of_a_barrier_is_messages_without_bytes) {
  const plan::Shape shape{.what = Collective::kBarrier, .world = 5};
  const auto links = count(Algorithm::kTree, shape, Dtype::kF32);
  EXPECT_EQ(links.size(), 15U);  // 5 ranks, distances 1, 2, 4
  for (const LinkTraffic& link : links) {
    EXPECT_EQ(link.messages, 1U);
    EXPECT_EQ(link.bytes, 0U);
  }
}

TEST(Count, of_one_rank_is_nothing) {
  EXPECT_TRUE(count(Algorithm::kRing, {.count = 10}, Dtype::kF32).empty());
}

std::uint64_t elements_of(Algorithm algorithm, int world, std::uint64_t n) {
  std::uint64_t elements = 0;
  for (const auto& link : count(algorithm, {.world = world, .count = n}, Dtype::kF32)) {
    elements += link.elements;
  }
  return elements;
}

TEST(Count, finds_the_totals_of_every_allreduce) {
  const std::uint64_t n = 1'000'003;
  EXPECT_EQ(elements_of(Algorithm::kRing, 128, n), 2 * 127 * n);
  EXPECT_EQ(elements_of(Algorithm::kPairwise, 128, n), 2 * 127 * n);
  EXPECT_EQ(elements_of(Algorithm::kRelay, 128, n), 2 * 127 * n);
  EXPECT_EQ(elements_of(Algorithm::kDirect, 128, n), 2 * 127 * n);
  EXPECT_EQ(elements_of(Algorithm::kOneStage, 128, n), 128 * 127 * n);
}

TEST(Count, takes_a_ring_of_1024_ranks_in_seconds) {
  const std::clock_t begin = std::clock();
  EXPECT_EQ(elements_of(Algorithm::kRing, 1024, 1'000'003), 2 * 1023 * 1'000'003ULL);
  EXPECT_LT(std::clock() - begin, 30 * CLOCKS_PER_SEC);  // of this process; sanitizers included
}

TEST(Count, refuses_what_has_no_schedule) {
  EXPECT_THROW((void)count(Algorithm::kTree, {.world = 2}, Dtype::kF32), UsageError);
  EXPECT_THROW((void)count(Algorithm::kRing, {.world = 0}, Dtype::kF32), UsageError);
}

}  // namespace
}  // namespace paceline::sim
