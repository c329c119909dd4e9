// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/sampler_order.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace paceline {
namespace {

std::vector<std::uint64_t> shard_of(const Pass& pass) {
  std::vector<std::uint64_t> positions;
  for (std::uint64_t k = 0; k < pass.count(); ++k) positions.push_back(pass.position(k));
  return positions;
}

std::vector<std::uint64_t> sizes_around(std::uint64_t world) {
  return {0, 1, 2, world - 1, world, world + 1, 2 * world + 1, 23, 40};
}

TEST(SamplerOrder, equals_pytorch_without_shuffle) {
  std::ifstream file(PACELINE_FIXTURES "/sampler.txt");
  ASSERT_TRUE(file.is_open());
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    std::istringstream fields(line);
    Pass pass;
    int drop_last = 0;
    fields >> pass.size >> pass.world >> drop_last >> pass.rank;
    pass.tail = drop_last != 0 ? Tail::kDrop : Tail::kPad;
    std::vector<std::uint64_t> expected;
    for (std::uint64_t index = 0; fields >> index;) expected.push_back(index);
    EXPECT_EQ(shard_of(pass), expected) << line;
  }
  EXPECT_EQ(lines, 322);
}

TEST(SamplerOrder, uneven_shards_are_disjoint_complete_and_balanced) {
  for (const int world : {1, 2, 3, 5, 8}) {
    for (const std::uint64_t size : sizes_around(static_cast<std::uint64_t>(world))) {
      std::vector<std::uint64_t> all;
      for (int rank = 0; rank < world; ++rank) {
        const auto shard = shard_of({size, 0, rank, world, Tail::kKeep});
        const auto least = size / static_cast<std::uint64_t>(world);
        EXPECT_TRUE(shard.size() == least || shard.size() == least + 1);
        all.insert(all.end(), shard.begin(), shard.end());
      }
      std::sort(all.begin(), all.end());
      std::vector<std::uint64_t> expected(size);
      std::iota(expected.begin(), expected.end(), std::uint64_t{0});
      EXPECT_EQ(all, expected) << size << " samples on " << world << " ranks";
    }
  }
}

TEST(SamplerOrder, padded_and_dropped_shards_are_equally_long) {
  for (const int world : {1, 2, 3, 5, 8}) {
    const auto ranks = static_cast<std::uint64_t>(world);
    for (const std::uint64_t size : sizes_around(ranks)) {
      for (int rank = 0; rank < world; ++rank) {
        EXPECT_EQ((Pass{size, 0, rank, world, Tail::kPad}.count()), (size + ranks - 1) / ranks);
        EXPECT_EQ((Pass{size, 0, rank, world, Tail::kDrop}.count()), size / ranks);
      }
    }
  }
}

TEST(SamplerOrder, consumed_counts_all_ranks_and_ends_at_the_size) {
  const Pass pass{10, 0, 0, 4, Tail::kPad};
  EXPECT_EQ(pass.consumed(0), 0U);
  EXPECT_EQ(pass.consumed(2), 8U);
  EXPECT_EQ(pass.consumed(3), 10U);
  EXPECT_EQ((Pass{10, 0, 3, 4, Tail::kDrop}.consumed(2)), 10U);
  EXPECT_EQ((Pass{10, 0, 3, 4, Tail::kKeep}.consumed(2)), 8U);
  EXPECT_EQ((Pass{10, 4, 1, 3, Tail::kPad}.consumed(1)), 7U);
  EXPECT_EQ(pass.consumed(~std::uint64_t{0}), 10U);
}

TEST(ShuffleGenerator, gives_the_published_sequence_of_xoshiro256starstar) {
  ShuffleGenerator generator(42);
  EXPECT_EQ(generator.next(), 0x15780b2e0c2ec716U);
  EXPECT_EQ(generator.next(), 0x6104d9866d113a7eU);
  EXPECT_EQ(generator.next(), 0xae17533239e499a1U);
}

TEST(ShuffleGenerator, draws_every_number_below_the_bound_equally_often) {
  ShuffleGenerator generator(1);
  constexpr int kDraws = 60000;
  std::array<int, 6> hits{};
  for (int i = 0; i < kDraws; ++i) ++hits.at(generator.below(6));
  // Binomial with p = 1/6: sigma is 91, so 500 is 5.5 sigma.
  for (const int hit : hits) EXPECT_NEAR(hit, kDraws / 6, 500);
  EXPECT_EQ(generator.below(1), 0U);
  EXPECT_LT(generator.below(~std::uint64_t{0}), ~std::uint64_t{0});
}

TEST(Shuffle, is_the_same_on_every_platform) {
  using Order = std::vector<std::uint64_t>;
  EXPECT_EQ(shuffled_order(12, 0, 0), (Order{4, 1, 11, 10, 0, 5, 7, 2, 9, 3, 6, 8}));
  EXPECT_EQ(shuffled_order(12, 0, 1), (Order{6, 8, 7, 11, 2, 10, 0, 4, 5, 1, 3, 9}));
  EXPECT_EQ(shuffled_order(12, 1, 0), (Order{7, 10, 3, 5, 8, 4, 2, 9, 11, 1, 0, 6}));
  const Order large = shuffled_order(60000, 7, 3);
  std::uint64_t weighted = 0;
  for (std::size_t i = 0; i < large.size(); ++i) weighted += (i + 1) * large[i];
  EXPECT_EQ(weighted, 54046914801816U);
  EXPECT_EQ(large.front(), 54529U);
}

TEST(Shuffle, is_a_permutation) {
  for (const std::uint64_t size : {0U, 1U, 2U, 3U, 1000U}) {
    auto order = shuffled_order(size, 5, 9);
    std::sort(order.begin(), order.end());
    std::vector<std::uint64_t> expected(size);
    std::iota(expected.begin(), expected.end(), std::uint64_t{0});
    EXPECT_EQ(order, expected);
  }
}

}  // namespace
}  // namespace paceline
