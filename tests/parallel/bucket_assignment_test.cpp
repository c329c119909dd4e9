// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/bucket_assignment.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"

namespace paceline {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
using Order = std::vector<std::size_t>;

// Three Linear(512, 512) in f32: weight, bias, weight, bias, weight, bias.
const std::vector<GradientShape> kThreeLinear{{Dtype::kF32, kMiB}, {Dtype::kF32, 2048},
                                              {Dtype::kF32, kMiB}, {Dtype::kF32, 2048},
                                              {Dtype::kF32, kMiB}, {Dtype::kF32, 2048}};
const Order kReverse{5, 4, 3, 2, 1, 0};

TEST(AssignBuckets, gives_pytorchs_layout_for_an_arrival_order) {
  EXPECT_EQ(assign_buckets(kThreeLinear, kReverse, {kMiB, 25 * kMiB}),
            (BucketLayout{{5, 4}, {3, 2, 1, 0}}));
  const Order forward{0, 1, 2, 3, 4, 5};
  EXPECT_EQ(assign_buckets(kThreeLinear, forward, {kMiB, kMiB}),
            (BucketLayout{{0}, {1, 2}, {3, 4}, {5}}));
}

TEST(AssignBuckets, closes_a_bucket_at_its_cap_and_never_splits_a_gradient) {
  EXPECT_EQ(assign_buckets(kThreeLinear, kReverse, {1, 1}),
            (BucketLayout{{5}, {4}, {3}, {2}, {1}, {0}}));
  EXPECT_EQ(assign_buckets(kThreeLinear, kReverse, {2048, 2049}),
            (BucketLayout{{5}, {4}, {3, 2}, {1, 0}}));
}

TEST(AssignBuckets, keeps_types_apart_and_launches_in_the_order_of_completion) {
  const std::vector<GradientShape> mixed{
      {Dtype::kF32, 8}, {Dtype::kBF16, 4}, {Dtype::kF32, 8}, {Dtype::kF64, 8}, {Dtype::kBF16, 4}};
  EXPECT_EQ(assign_buckets(mixed, Order{0, 1, 2, 3, 4}, {8, 16}),
            (BucketLayout{{0}, {2}, {3}, {1, 4}}));
}

TEST(AssignBuckets, takes_nothing_and_empty_gradients) {
  EXPECT_EQ(assign_buckets({}, {}, {1, 1}), BucketLayout{});
  EXPECT_EQ(assign_buckets(std::vector<GradientShape>{{Dtype::kF32, 0}}, Order{0}, {1, 1}),
            (BucketLayout{{0}}));
}

TEST(AssignBuckets, refuses_an_order_that_is_no_permutation_and_a_cap_of_0) {
  const std::vector<GradientShape> two{{Dtype::kF32, 4}, {Dtype::kF32, 4}};
  for (const Order& order : {Order{0}, Order{0, 0}, Order{0, 2}, Order{0, 1, 1}}) {
    EXPECT_THROW((void)assign_buckets(two, order, {1, 1}), UsageError);
  }
  EXPECT_THROW((void)assign_buckets(two, Order{0, 1}, {0, 1}), UsageError);
  EXPECT_THROW((void)assign_buckets(two, Order{0, 1}, {1, 0}), UsageError);
}

}  // namespace
}  // namespace paceline
