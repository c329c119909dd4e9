// SPDX-License-Identifier: Apache-2.0
// Folds that add to what is there.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/kernel/fold.h"
#include "paceline/kernel/targets.h"
#include "tests/kernel/operands.h"
#include "tests/kernel/scalar_twin.h"

namespace paceline::kernel {
namespace {

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

/// One element, in plain arithmetic.
template <typename T>
T expected_sum(T result, const ScaledAdd& how, T old) {
  const T scale = static_cast<T>(how.scale);
  if (how.fused) return std::fma(result, scale, old);
  const volatile T product = result * scale;  // else a compiler may fuse it
  return product + old;
}

/// A NaN may have any bits.
template <typename T>
bool same(T a, T b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<BitsOf<T>>(a) == std::bit_cast<BitsOf<T>>(b);
}

/// Adds the last `count` elements of some terms to a target, and looks at all of it.
template <typename T>
void expect_the_twin(std::size_t term_count, std::size_t count, ReduceOp op, const ScaledAdd& how) {
  constexpr Dtype kDtype = dtype_of<T>();
  const int world = static_cast<int>(term_count);
  Random random(term_count * 1000 + count);
  std::vector<Operand> operands;
  std::vector<Term> terms;
  for (std::size_t k = 0; k < term_count; ++k) {
    operands.emplace_back(kDtype, Form::kT, count, random.next() % 64).fill(kDtype, random);
  }
  for (Operand& one : operands) terms.push_back({one.last(count), Form::kT});
  Operand target(kDtype, Form::kT, count + 3, random.next() % 64);
  target.fill(kDtype, random);
  const Operand old = target;
  std::vector<T> results(count);
  twin::fold(kDtype, op, world, count, terms,
             {reinterpret_cast<std::byte*>(results.data()), Form::kT});
  fold(kDtype, op, world, count, terms, std::array{Target{target.last(count), Form::kT}}, &how);
  for (std::size_t i = 0; i < count + 3; ++i) {
    const T before = std::bit_cast<T>(static_cast<BitsOf<T>>(old.get(i)));
    const T after = std::bit_cast<T>(static_cast<BitsOf<T>>(target.get(i)));
    const T wanted = i < 3 ? before : expected_sum(results[i - 3], how, before);
    ASSERT_TRUE(same(after, wanted))
        << target_name() << ", " << name_of(kDtype) << ' ' << name_of(op) << " of " << term_count
        << " terms, " << count << " elements, fused " << how.fused << ", element " << i << ": "
        << after << ", expected " << wanted << ", was " << before;
  }
}

class ScaledAddOn : public testing::TestWithParam<std::string> {
 protected:
  ForcedTarget target_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Target, ScaledAddOn, testing::ValuesIn(targets()), [](const auto& test) {
  return test.param;
});

TEST_P(ScaledAddOn, equals_the_twin_for_every_tail) {
  for (const bool fused : {true, false}) {
    const ScaledAdd how{.scale = -0.1, .fused = fused};
    for (const std::size_t term_count : {2U, 3U, 9U}) {
      for (std::size_t count = 0; count <= 67; ++count) {
        expect_the_twin<float>(term_count, count, ReduceOp::kMean, how);
        expect_the_twin<double>(term_count, count, ReduceOp::kMean, how);
      }
    }
  }
}

TEST_P(ScaledAddOn, equals_the_twin_of_2_to_17_terms_and_where_it_fetches_ahead) {
  for (std::size_t term_count = 2; term_count <= 17; ++term_count) {
    // Sums of more than 8 terms wait in blocks of 4 KiB, and two terms are fetched 4 KiB ahead.
    const std::size_t count = term_count == 2 || term_count == 9 ? 2500 : 141;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin}) {
      expect_the_twin<float>(term_count, count, op, {.scale = 0.3, .fused = term_count % 2 == 0});
      expect_the_twin<double>(term_count, count, op, {.scale = 0.3, .fused = term_count % 2 != 0});
    }
  }
}

/// What `old` becomes if the mean of `a` and `b`, times `scale`, is added to it.
template <typename T>
T added(T a, T b, const ScaledAdd& how, T old) {
  const std::array terms{Term{reinterpret_cast<const std::byte*>(&a), Form::kT},
                         Term{reinterpret_cast<const std::byte*>(&b), Form::kT}};
  const std::array target{Target{reinterpret_cast<std::byte*>(&old), Form::kT}};
  fold(dtype_of<T>(), ReduceOp::kMean, 2, 1, terms, target, &how);
  return old;
}

// Literal numbers, so that the twin cannot be wrong in the same way.
TEST_P(ScaledAddOn, rounds_the_product_unless_it_is_fused) {
  // (1 + e)² is 1 + 2e + e²: rounded it has lost e².
  const double e = 0x1p-12;
  const float one = 1 + 0x1p-12F, square = -(1 + 0x1p-11F);
  EXPECT_EQ(added(one, one, {.scale = 1 + e, .fused = true}, square), 0x1p-24F);
  EXPECT_EQ(added(one, one, {.scale = 1 + e, .fused = false}, square), 0.0F);
  EXPECT_EQ(added(1 + 0x1p-27, 1 + 0x1p-27, {.scale = 1 + 0x1p-27, .fused = true}, -(1 + 0x1p-26)),
            0x1p-54);
  EXPECT_EQ(added(1 + 0x1p-27, 1 + 0x1p-27, {.scale = 1 + 0x1p-27, .fused = false}, -(1 + 0x1p-26)),
            0.0);
}

TEST_P(ScaledAddOn, rounds_the_scale_to_the_type) {
  EXPECT_EQ(added(1.0F, 1.0F, {.scale = 1 + 0x1p-30}, 0.0F), 1.0F);
  EXPECT_EQ(added(1.0, 1.0, {.scale = 1 + 0x1p-30}, 0.0), 1 + 0x1p-30);
}

TEST_P(ScaledAddOn, lets_a_nan_win) {
  EXPECT_TRUE(std::isnan(added(NAN, 1.0F, {.scale = 0}, 1.0F)));
  EXPECT_TRUE(std::isnan(added(1.0F, 1.0F, {.scale = 1}, NAN)));
  EXPECT_TRUE(std::isnan(added(INFINITY, 1.0F, {.scale = -1}, INFINITY)));
}

TEST(ScaledAdd, is_refused_where_it_cannot_be) {
  std::array<std::byte, 64> memory{};
  const std::array terms{Term{memory.data()}, Term{memory.data() + 8}};
  const std::array target{Target{memory.data() + 16}};
  const std::array two{Target{memory.data() + 16}, Target{memory.data() + 24}};
  const std::array sum{Target{memory.data() + 16, Form::kSum}};
  const ScaledAdd how;
  const auto refused = [&](Dtype dtype, std::span<const Term> from, std::span<const Target> to) {
    EXPECT_THROW(fold(dtype, ReduceOp::kSum, 2, 1, from, to, &how), UsageError);
  };
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16, Dtype::kU8, Dtype::kI32, Dtype::kI64}) {
    refused(dtype, terms, target);
  }
  refused(Dtype::kF32, {terms.data(), 1}, target);
  refused(Dtype::kF32, terms, two);
  refused(Dtype::kF32, terms, sum);
}

}  // namespace
}  // namespace paceline::kernel
