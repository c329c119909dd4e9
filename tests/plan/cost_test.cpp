// SPDX-License-Identifier: Apache-2.0
#include "paceline/plan/cost.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "tests/plan/menu.h"

namespace paceline::plan {
namespace {

TEST(BytesSent, equal_the_closed_form_for_every_algorithm_rank_count_and_type) {
  for (int world = 1; world <= 17; ++world) {
    for (std::uint64_t count : odd_counts(world)) {
      for (const Dish& dish : menu()) {
        Shape shape{.what = dish.what,
                    .world = world,
                    .root = world / 2,
                    .count = count,
                    .windows = dish.windows};
        for (shape.rank = 0; shape.rank < world; ++shape.rank) {
          const Schedule s = make_schedule(dish.algorithm, shape);
          for (auto dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kU8, Dtype::kF64}) {
            EXPECT_EQ(bytes_read(s, shape, dtype),
                      formula_bytes_read(dish.algorithm, shape, dtype));
            EXPECT_EQ(bytes_sent(s, shape, dtype), formula_bytes_sent(dish.algorithm, shape, dtype))
                << name_of(dish.algorithm) << ' ' << name_of(dish.what) << " rank " << shape.rank
                << " of " << world << ", " << count << ' ' << name_of(dtype);
          }
        }
      }
    }
  }
}

TEST(FormulaBytesSent, has_the_published_form) {
  for (int world : {2, 3, 4, 9}) {
    const std::uint64_t b = 4 * 1003;
    const auto peers = static_cast<std::uint64_t>(world - 1);
    std::uint64_t total = 0;
    for (int r = 0; r < world; ++r) {
      const Shape shape{.rank = r, .world = world, .count = 1003};
      const auto formula = [&](Algorithm a) { return formula_bytes_sent(a, shape, Dtype::kF32); };
      const auto c = [&](int k) { return 4 * chunk(1003, world, k).size(); };
      EXPECT_EQ(formula(Algorithm::kRing), 2 * b - c(r) - c(r + 1));
      EXPECT_EQ(formula(Algorithm::kPairwise), b - c(r) + peers * c(r));
      EXPECT_EQ(formula(Algorithm::kOneStage), peers * b);
      EXPECT_EQ(formula(Algorithm::kRelay), r == 0 ? peers * b : b);
      EXPECT_EQ(formula(Algorithm::kDirect), peers * c(r));
      EXPECT_EQ(formula_bytes_read(Algorithm::kDirect, shape, Dtype::kF32), peers * c(r));
      total += formula(Algorithm::kRing);
    }
    EXPECT_EQ(total, 2 * peers * b);
  }
}

TEST(FormulaBytesSent, adds_up_over_all_ranks_to_the_totals_of_the_documentation) {
  for (int world = 2; world <= 17; ++world) {
    for (std::uint64_t count : odd_counts(world)) {
      for (const Dish& dish : menu()) {
        const auto n = static_cast<std::uint64_t>(world);
        const std::uint64_t b = 8 * count;
        Shape shape{
            .what = dish.what, .world = world, .root = 1, .count = count, .windows = dish.windows};
        std::uint64_t total = 0;
        for (shape.rank = 0; shape.rank < world; ++shape.rank) {
          total += formula_bytes_sent(dish.algorithm, shape, Dtype::kF64) +
                   formula_bytes_read(dish.algorithm, shape, Dtype::kF64);
        }
        std::uint64_t expected = (n - 1) * b;
        if (dish.what == Collective::kAllReduce) {
          expected *= dish.algorithm == Algorithm::kOneStage ? n : 2;
        }
        EXPECT_EQ(total, dish.what == Collective::kBarrier ? 0 : expected);
      }
    }
  }
}

TEST(FormulaBytesSent, of_a_ring_counts_partial_sums_of_16_bit_floats_in_f32) {
  // N = 4, n = 8: a rank sends 2 terms and 4 partial sums, then 6 whole elements.
  const Shape shape{.world = 4, .count = 8};
  EXPECT_EQ(formula_bytes_sent(Algorithm::kRing, shape, Dtype::kBF16), 2U * 2 + 4 * 4 + 6 * 2);
}

TEST(FormulaBytesSent, refuses_what_has_no_schedule) {
  EXPECT_THROW((void)formula_bytes_sent(Algorithm::kTree, {.world = 2}, Dtype::kF32), UsageError);
  EXPECT_THROW((void)formula_bytes_sent(Algorithm::kRing, {.rank = 2, .world = 2}, Dtype::kF32),
               UsageError);
}

TEST(ForEachTransfer, counts_windows_that_a_step_reads_and_writes) {
  const Step step{.kind = Kind::kFold,
                  .src = Memory::kIn,
                  .dst = Memory::kSum,
                  .from = {2, 3},
                  .to = {0, 2},
                  .elements = {0, 10}};
  std::vector<std::vector<std::uint64_t>> seen;
  for_each_transfer(step, 0, 4, Dtype::kBF16, [&](int from, int to, std::uint64_t bytes) {
    seen.push_back({static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), bytes});
  });
  EXPECT_EQ(seen, (std::vector<std::vector<std::uint64_t>>{{2, 0, 20}, {3, 0, 20}, {0, 1, 40}}));
}

}  // namespace
}  // namespace paceline::plan
