// SPDX-License-Identifier: Apache-2.0
#include "paceline/kernel/fold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/kernel/targets.h"
#include "tests/kernel/operands.h"
#include "tests/kernel/scalar_twin.h"

namespace paceline::kernel {
namespace {

constexpr std::array kDtypes{Dtype::kF32, Dtype::kF64, Dtype::kF16, Dtype::kBF16,
                             Dtype::kU8,  Dtype::kI32, Dtype::kI64};
constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax};
constexpr std::array kForms{Form::kT, Form::kSum};

/// For each target the term in whose memory it lies, or none.
using Places = std::vector<std::optional<std::size_t>>;

/// The forms of a fold's terms, in the combinations that schedules use and some more.
std::vector<std::vector<Form>> form_lists(std::size_t term_count) {
  std::vector<std::vector<Form>> lists;
  lists.emplace_back(term_count, Form::kT);
  lists.emplace_back(term_count, Form::kSum);
  if (term_count == 1) return lists;
  lists.emplace_back(term_count, Form::kT).front() = Form::kSum;
  lists.emplace_back(term_count, Form::kT).back() = Form::kSum;
  return lists;
}

/// One shape of fold: terms with their values, and what the twin makes of them.
class Case {
 public:
  Case(Dtype dtype,
       ReduceOp op,
       const std::vector<Form>& forms,
       Form out,
       std::size_t count,
       std::uint64_t seed)
      : dtype_(dtype),
        op_(op),
        world_(static_cast<int>(forms.size()) + 1),
        forms_(forms),
        out_(out),
        expected_(dtype, out, count, seed % 2) {
    Random random(seed);
    for (const Form form : forms) {
      operands_.emplace_back(dtype, form, count, random.next() % 64);
      operands_.back().fill(form == Form::kT ? dtype : accumulation_type(dtype), random);
    }
    skew_ = random.next() % 48;
    twin::fold(dtype, op, world_, count, terms(operands_, count), {expected_.last(count), out});
  }

  /// Folds the last `count` elements. Where a term has no room for the result, the target is apart.
  [[nodiscard]] testing::AssertionResult holds(std::size_t count,
                                               const Places& places = {std::nullopt}) {
    memory_ = operands_;  // of the terms, then of targets apart
    std::vector<std::size_t> homes;
    for (const auto& place : places) {
      const bool in_place = place && size_of(dtype_, forms_[*place]) == size_of(dtype_, out_);
      homes.push_back(in_place ? *place : memory_.size());
      if (!in_place) memory_.emplace_back(dtype_, out_, expected_.count(), skew_ + memory_.size());
    }
    wanted_ = memory_;
    std::vector<Target> targets;
    for (const std::size_t home : homes) {
      std::memcpy(wanted_[home].last(count), expected_.last(count), count * size_of(dtype_, out_));
      targets.push_back({memory_[home].last(count), out_});
    }
    fold(dtype_, op_, world_, count, terms(memory_, count), targets);
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (!memory_[i].same_bytes(wanted_[i])) return failure(memory_[i], wanted_[i], count, i);
    }
    return testing::AssertionSuccess();
  }

 private:
  std::vector<Term> terms(std::vector<Operand>& memory, std::size_t count) {
    std::vector<Term> result;
    for (std::size_t k = 0; k < forms_.size(); ++k) {
      result.push_back({memory[k].last(count), forms_[k]});
    }
    return result;
  }

  testing::AssertionResult failure(const Operand& got,
                                   const Operand& wanted,
                                   std::size_t count,
                                   std::size_t home) {
    std::size_t i = 0;
    while (i + 1 < got.count() && got.get(i) == wanted.get(i)) ++i;
    testing::Message text;  // AssertionFailure() alone would forget std::hex after each <<
    text << name_of(op_) << " of " << forms_.size() << " terms " << name_of(dtype_) << " into "
         << (out_ == Form::kT ? "T" : "sum") << " on " << target_name() << ", last " << count
         << ", element " << i << " of "
         << (home < forms_.size() ? "term " + std::to_string(home) : "a target apart") << ": "
         << std::hex << got.get(i) << ", expected " << wanted.get(i) << ", from";
    for (std::size_t k = 0; k < operands_.size(); ++k) {
      text << ' ' << operands_[k].get(i) << (forms_[k] == Form::kT ? "(T)" : "(sum)");
    }
    return testing::AssertionFailure() << text;
  }

  Dtype dtype_;
  ReduceOp op_;
  int world_;
  std::vector<Form> forms_;
  Form out_;
  Operand expected_;
  std::vector<Operand> operands_;
  std::size_t skew_ = 0;
  std::vector<Operand> memory_;
  std::vector<Operand> wanted_;
};

/// Calls visit(dtype, op, forms, out) for each combination with `term_count` terms.
template <typename Visit>
void for_each_shape(std::size_t term_count, Visit visit) {
  for (const Dtype dtype : kDtypes) {
    for (const ReduceOp op : kOps) {
      if (op == ReduceOp::kMean && !is_floating(dtype)) continue;
      // Other types are alike in both forms: of many terms they need the first list only.
      const bool alike = size_of(dtype, Form::kT) == size_of(dtype, Form::kSum);
      auto lists = form_lists(term_count);
      if (alike && term_count > 2) lists.resize(1);
      for (const auto& forms : lists) {
        for (const Form out : kForms) visit(dtype, op, forms, out);
      }
    }
  }
}

std::string target_of(const testing::TestParamInfo<std::string>& test) { return test.param; }

class FoldOn : public testing::TestWithParam<std::string> {
 protected:
  ForcedTarget target_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Target, FoldOn, testing::ValuesIn(targets()), target_of);

TEST_P(FoldOn, runs_on_the_forced_target) { EXPECT_EQ(target_name(), GetParam()); }

TEST_P(FoldOn, equals_the_twin_for_every_tail) {
  constexpr std::size_t kMost = 67;
  for (const std::size_t term_count : {1U, 2U, 3U, 9U}) {
    const std::size_t stride = term_count == 2 ? 1 : 7;  // the others meet the same tails again
    for_each_shape(term_count, [&](Dtype dtype, ReduceOp op, const auto& forms, Form out) {
      Case c(dtype, op, forms, out, kMost, 100 + term_count);
      for (std::size_t count = 0; count <= kMost; count += stride) ASSERT_TRUE(c.holds(count));
    });
  }
}

TEST_P(FoldOn, equals_the_twin_in_place_of_any_term) {
  constexpr std::size_t kMost = 67;
  for (const std::size_t term_count : {1U, 2U, 3U}) {
    for_each_shape(term_count, [&](Dtype dtype, ReduceOp op, const auto& forms, Form out) {
      Case c(dtype, op, forms, out, kMost, 200 + term_count);
      for (std::size_t count = 0; count <= kMost; count += count < 20 ? 1 : 13) {
        for (std::size_t k = 0; k < term_count; ++k) ASSERT_TRUE(c.holds(count, {k}));
      }
    });
  }
}

/// Calls check() on each SIMD target, for expectations that are computed once.
template <typename Check>
void on_each_target(Check check) {
  for (const std::string& name : targets()) {
    const ForcedTarget forced(name);
    check();
  }
}

/// Of `count` targets the first `term_count`, all or every other, are terms, from term `first` on.
Places places(std::size_t count, std::size_t term_count, std::size_t first) {
  Places result(count);
  for (std::size_t k = 0; k < count && k < term_count; k += 1 + first % 2) {
    result[k] = (first + k) % term_count;
  }
  return result;
}

TEST(Fold, equals_the_twin_over_several_blocks_and_where_it_fetches_ahead) {
  for (const std::size_t term_count : {1U, 2U, 9U}) {
    for_each_shape(term_count, [&](Dtype dtype, ReduceOp op, const auto& forms, Form out) {
      if (op == ReduceOp::kMin || op == ReduceOp::kMax) return;  // slow, and blocks are the same
      // A block has 4 KiB of sums, and two terms are fetched 4 KiB ahead.
      const std::size_t count = 4096 / size_of(dtype, Form::kSum) + 4096 / size_of(dtype) + 3;
      Case c(dtype, op, forms, out, count, 300 + term_count);
      on_each_target([&] {
        const Places two{term_count / 2, std::nullopt};
        ASSERT_TRUE(c.holds(count, two));
        ASSERT_TRUE(c.holds(count, {term_count / 2}));
      });
    });
  }
}

TEST(Fold, equals_the_twin_from_1_to_17_terms_into_1_to_9_targets) {
  std::size_t seed = 400;
  for (std::size_t term_count = 1; term_count <= 17; ++term_count) {
    for_each_shape(term_count, [&](Dtype dtype, ReduceOp op, const auto& forms, Form out) {
      // More than one step of four vectors, and some of the next, on every SIMD target.
      const std::size_t count = 256 / size_of(dtype, Form::kSum) * 5 / 4 + 1 + ++seed % 2;
      Case c(dtype, op, forms, out, count, seed);
      on_each_target([&] {
        ASSERT_TRUE(c.holds(count, places(1 + seed % 9, term_count, seed % term_count)));
      });
    });
  }
}

TEST(Fold, equals_the_twin_in_place_of_each_of_up_to_17_terms) {
  for (std::size_t term_count = 1; term_count <= 17; ++term_count) {
    for (const Dtype dtype : kDtypes) {
      const std::vector<Form> forms(term_count, Form::kT);
      const std::size_t count = 128 / size_of(dtype, Form::kSum) + 1;
      Case c(dtype, ReduceOp::kSum, forms, Form::kT, count, 500 + term_count);
      on_each_target([&] {
        for (std::size_t k = 0; k < term_count; ++k) {
          ASSERT_TRUE(c.holds(count, places(term_count, term_count, k)));
        }
      });
    }
  }
}

/// Each special value, with either sign, against each: [n * n] elements of two terms.
std::array<Operand, 2> all_pairs(Dtype dtype) {
  std::vector<std::uint64_t> values;
  for (const std::uint64_t value : special_values(dtype)) {
    values.push_back(value);
    values.push_back(value | std::uint64_t{1} << (8 * size_of(dtype) - 1));
  }
  const std::size_t n = values.size();
  std::array<Operand, 2> pair{Operand(dtype, Form::kT, n * n, 0),
                              Operand(dtype, Form::kT, n * n, 1)};
  for (std::size_t i = 0; i < n * n; ++i) {
    pair[0].set(i, values[i / n]);
    pair[1].set(i, values[i % n]);
  }
  return pair;
}

TEST_P(FoldOn, equals_the_twin_for_every_pair_of_special_values) {
  for (const Dtype dtype : kDtypes) {
    auto pair = all_pairs(dtype);
    const std::size_t n = pair[0].count();
    const std::array terms{Term{pair[0].last(n), Form::kT}, Term{pair[1].last(n), Form::kT}};
    for (const ReduceOp op : kOps) {
      if (op == ReduceOp::kMean && !is_floating(dtype)) continue;
      for (const Form out : kForms) {
        Operand expected(dtype, out, n, 0);
        Operand result(dtype, out, n, 0);
        twin::fold(dtype, op, 3, n, terms, {expected.last(n), out});
        fold(dtype, op, 3, n, terms, std::array{Target{result.last(n), out}});
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(result.get(i), expected.get(i))
              << name_of(dtype) << ' ' << name_of(op) << std::hex << " of " << pair[0].get(i)
              << " and " << pair[1].get(i);
        }
      }
    }
  }
}

/// Folds bits of single elements, all in Form::kT.
std::uint64_t fold_bits(Dtype dtype, ReduceOp op, int world, std::vector<std::uint64_t> bits) {
  std::vector<Term> terms;
  for (const auto& value : bits) {
    terms.push_back({reinterpret_cast<const std::byte*>(&value), Form::kT});
  }
  std::uint64_t result = 0;
  const Target target{reinterpret_cast<std::byte*>(&result), Form::kT};
  fold(dtype, op, world, 1, terms, {&target, 1});
  return result;
}

// From here on literal bits, so that the twin cannot be wrong in the same way.
TEST_P(FoldOn, makes_one_canonical_nan) {
  for (const ReduceOp op : kOps) {
    EXPECT_EQ(fold_bits(Dtype::kF32, op, 2, {0xff812345, 0x3f800000}), 0x7fc00000U);
    EXPECT_EQ(fold_bits(Dtype::kF32, op, 2, {0x3f800000, 0x7f800001}), 0x7fc00000U);
    EXPECT_EQ(fold_bits(Dtype::kF64, op, 2, {0x3ff0000000000000, 0xfff0000000000001}),
              0x7ff8000000000000U);
    EXPECT_EQ(fold_bits(Dtype::kF16, op, 2, {0xfc01, 0x3c00}), 0x7e00U);
    EXPECT_EQ(fold_bits(Dtype::kBF16, op, 2, {0x3f80, 0xff81}), 0x7fc0U);
  }
  EXPECT_EQ(fold_bits(Dtype::kF32, ReduceOp::kSum, 1, {0x7f800000, 0xff800000}), 0x7fc00000U);
}

TEST_P(FoldOn, copies_a_single_term_bit_for_bit) {
  EXPECT_EQ(fold_bits(Dtype::kF32, ReduceOp::kMean, 7, {0xff812345}), 0xff812345U);
  EXPECT_EQ(fold_bits(Dtype::kF16, ReduceOp::kMean, 7, {0xfc01}), 0xfc01U);
}

TEST_P(FoldOn, puts_minus_zero_below_plus_zero) {
  EXPECT_EQ(fold_bits(Dtype::kF32, ReduceOp::kMin, 1, {0, 0x80000000}), 0x80000000U);
  EXPECT_EQ(fold_bits(Dtype::kF32, ReduceOp::kMin, 1, {0x80000000, 0}), 0x80000000U);
  EXPECT_EQ(fold_bits(Dtype::kF32, ReduceOp::kMax, 1, {0, 0x80000000}), 0U);
  EXPECT_EQ(fold_bits(Dtype::kF16, ReduceOp::kMax, 1, {0x8000, 0}), 0U);
}

TEST_P(FoldOn, wraps_integer_sums) {
  EXPECT_EQ(fold_bits(Dtype::kU8, ReduceOp::kSum, 1, {200, 100}), 44U);
  EXPECT_EQ(fold_bits(Dtype::kI32, ReduceOp::kSum, 1, {0x7fffffff, 1}), 0x80000000U);
  EXPECT_EQ(fold_bits(Dtype::kI64, ReduceOp::kSum, 1, {0x7fffffffffffffff, 1}),
            0x8000000000000000U);
}

TEST_P(FoldOn, adds_from_left_to_right) {
  // 1e8 + 1 - 1e8 is 0 in F32; in any other order it is 1.
  EXPECT_EQ(fold_bits(Dtype::kF32, ReduceOp::kSum, 1, {0x4cbebc20, 0x3f800000, 0xccbebc20}), 0U);
  // Across groups of 8 too: 1e8 + 8 · 1 - 1e8, where a sum of the ones would not be lost.
  std::vector<std::uint64_t> bits(17, 0x3f800000);
  std::fill_n(bits.begin(), 8, 0);
  bits.front() = 0x4cbebc20;
  bits.back() = 0xccbebc20;
  EXPECT_EQ(fold_bits(Dtype::kF32, ReduceOp::kSum, 1, bits), 0U);
}

TEST_P(FoldOn, divides_truly_for_the_mean) {
  // 5/3: a product with the reciprocal gives 0x3fd55556.
  EXPECT_EQ(fold_bits(Dtype::kF32, ReduceOp::kMean, 3, {0x40000000, 0x40000000, 0x3f800000}),
            0x3fd55555U);
}

TEST_P(FoldOn, rounds_a_16_bit_sum_once) {
  // 1 + 2^-9 + 2^-9 in BF16 is 1 + 2^-8, halfway to 1 + 2^-7: to even, 1. Rounded sum by sum too.
  EXPECT_EQ(fold_bits(Dtype::kBF16, ReduceOp::kSum, 1, {0x3f80, 0x3b00, 0x3b00}), 0x3f80U);
  // With 2^-8 more it is 1 + 2^-7, which sum by sum would be lost.
  EXPECT_EQ(fold_bits(Dtype::kBF16, ReduceOp::kSum, 1, {0x3f80, 0x3b80, 0x3b80}), 0x3f81U);
  // 1 + 16 · 2^-9 over three groups of terms.
  std::vector<std::uint64_t> bits(17, 0x3b00);
  bits.front() = 0x3f80;
  EXPECT_EQ(fold_bits(Dtype::kBF16, ReduceOp::kSum, 1, bits), 0x3f84U);
}

TEST(Fold, of_integers_is_not_divided_whatever_number_of_ranks) {
  on_each_target([] {
    const std::array<std::uint8_t, 3> a{1, 2, 3}, b{10, 20, 255};
    const Term terms[] = {{reinterpret_cast<const std::byte*>(a.data())},
                          {reinterpret_cast<const std::byte*>(b.data())}};
    for (const int world : {2, 256, 512}) {  // 256 is no U8
      std::array<std::uint8_t, 3> one{}, two{};
      const Target targets[] = {{reinterpret_cast<std::byte*>(one.data())},
                                {reinterpret_cast<std::byte*>(two.data())}};
      fold(Dtype::kU8, ReduceOp::kSum, world, 3, terms, targets);
      EXPECT_EQ(one, (std::array<std::uint8_t, 3>{11, 22, 2}));
      EXPECT_EQ(two, one);
      fold(Dtype::kU8, ReduceOp::kSum, world, 3, terms, {targets, 1});
      EXPECT_EQ(one, two);
    }
  });
}

TEST(Fold, refuses_what_it_cannot_fold) {
  std::uint64_t memory = 0;
  auto* data = reinterpret_cast<std::byte*>(&memory);
  const std::array target{Target{data, Form::kT}};
  const std::array both{Target{data, Form::kT}, Target{data + 4, Form::kSum}};
  const std::array terms{Term{data, Form::kT}};
  EXPECT_THROW(fold(Dtype::kF32, ReduceOp::kSum, 1, 1, {}, target), UsageError);
  EXPECT_THROW(fold(Dtype::kF32, ReduceOp::kSum, 1, 1, terms, {}), UsageError);
  EXPECT_THROW(fold(Dtype::kF32, ReduceOp::kSum, 1, 1, terms, both), UsageError);
  EXPECT_THROW(fold(Dtype::kF32, ReduceOp::kSum, 0, 1, terms, target), UsageError);
  EXPECT_THROW(fold(Dtype::kI32, ReduceOp::kMean, 2, 1, terms, target), UsageError);
  EXPECT_THROW(fold(static_cast<Dtype>(99), ReduceOp::kSum, 2, 1, terms, target), UsageError);
  EXPECT_THROW(fold(Dtype::kF32, static_cast<ReduceOp>(99), 2, 1, terms, target), UsageError);
}

TEST(Fold, touches_nothing_for_no_elements) {
  const std::array terms{Term{}, Term{}};
  fold(Dtype::kF32, ReduceOp::kSum, 2, 0, terms, std::array{Target{}, Target{}});
}

TEST(Fold, refuses_to_force_a_target_that_the_machine_lacks) {
  EXPECT_THROW(ForcedTarget("PDP11"), UsageError);
  EXPECT_EQ(target_name(), targets().front());
}

}  // namespace
}  // namespace paceline::kernel
