// SPDX-License-Identifier: Apache-2.0
// Which rank's shard each element of a bucket is in.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "paceline/base/types.h"
#include "paceline/comm/init.h"
#include "paceline/parallel/bucket_assignment.h"
#include "paceline/parallel/shard_layout.h"

namespace paceline {
namespace {

TEST(ShardLayout, gives_each_element_to_the_rank_that_reduces_it_in_the_whole_bucket) {
  const std::vector<GradientShape> shapes{
      {Dtype::kF32, 4 * 7}, {Dtype::kF32, 0}, {Dtype::kF32, 4 * 30}, {Dtype::kF32, 4 * 1}};
  const BucketLayout layout{{3, 1, 0}, {2}};
  for (const int world : {1, 2, 3, 5}) {
    const auto ranks = make_local_ranks(world);
    for (const std::uint64_t shard_bytes : {1U, 24U, 4096U}) {
      std::vector<std::vector<int>> owners{
          std::vector<int>(7, -1), {}, std::vector<int>(30, -1), std::vector<int>(1, -1)};
      for (const Round& round : make_rounds(shapes, layout, ranks.front(), shard_bytes)) {
        std::vector<std::uint64_t> shard(static_cast<std::size_t>(world));
        for (const Stretch& stretch : round.stretches) {
          auto& filled = shard[static_cast<std::size_t>(stretch.owner)];
          EXPECT_EQ(stretch.offset, filled);
          filled += stretch.elements.size();
          for (auto e = stretch.elements.begin; e < stretch.elements.end; ++e) {
            EXPECT_EQ(std::exchange(owners[stretch.parameter][e], stretch.owner), -1);
          }
        }
        for (int rank = 0; rank < world; ++rank) {
          EXPECT_EQ(shard[static_cast<std::size_t>(rank)],
                    ranks.front().shard_of(rank, round.count).size());
          EXPECT_LE(4 * shard[static_cast<std::size_t>(rank)],
                    std::max<std::uint64_t>(4, shard_bytes));
        }
      }
      for (int rank = 0; rank < world; ++rank) {
        const Range part = ranks.front().shard_of(rank, 30);
        for (auto e = part.begin; e < part.end; ++e) EXPECT_EQ(owners[2][e], rank);
      }
      EXPECT_EQ(owners[3][0], 0);  // first of its bucket
    }
  }
}

}  // namespace
}  // namespace paceline
