// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/descriptor.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace paceline {
namespace {

const Descriptor kBase{.what = Collective::kAllReduce,
                       .algorithm = Algorithm::kRing,
                       .op = ReduceOp::kSum,
                       .dtype = Dtype::kF32,
                       .root = 0,
                       .count = 1000,
                       .label = "bucket 0"};

TEST(Descriptor, hash_sees_every_field) {
  std::vector<Descriptor> all(8, kBase);
  all[1].what = Collective::kReduceScatter;
  all[2].algorithm = Algorithm::kPairwise;
  all[3].op = ReduceOp::kMax;
  all[4].dtype = Dtype::kI32;
  all[5].root = 1;
  all[6].count = 1001;
  all[7].label = "bucket 1";
  std::set<std::uint64_t> hashes;
  for (const Descriptor& d : all) hashes.insert(hash_of(d));
  EXPECT_EQ(hashes.size(), all.size());
  EXPECT_EQ(hash_of(kBase), hash_of(Descriptor(kBase)));
  EXPECT_FALSE(hashes.contains(0));
}

TEST(Descriptor, text_is_for_people) {
  EXPECT_EQ(text_of(kBase), "allreduce f32[1000] sum by ring \"bucket 0\"");
  EXPECT_EQ(text_of({.what = Collective::kBroadcast,
                     .algorithm = Algorithm::kTree,
                     .dtype = Dtype::kBF16,
                     .root = 2,
                     .count = 5,
                     .label = {}}),
            "broadcast bf16[5] from 2 by tree");
  EXPECT_EQ(text_of({}), "barrier by tree");
}

}  // namespace
}  // namespace paceline
