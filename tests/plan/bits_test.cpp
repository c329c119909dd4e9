// SPDX-License-Identifier: Apache-2.0
// Every schedule for 1..17 ranks and odd counts, executed: values against plain loops, bits equal
// on all ranks and over all algorithms but relay, bytes equal to the closed form.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "paceline/plan/cost.h"
#include "tests/plan/menu.h"
#include "tests/sim/values.h"

namespace paceline::plan {
namespace {

template <typename T>
constexpr bool kIsInteger = std::is_integral_v<T>;

/// A value as it is, for the bound.
template <typename T>
double exact(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(sim::widen(value));
  }
}

/// Half the distance of neighbours near `value`, relative to it, in T and in the type that adds.
template <typename T>
double rounding() {
  if constexpr (std::is_same_v<T, BFloat16>) return std::ldexp(1.0, -8);
  if constexpr (std::is_same_v<T, Float16>) return std::ldexp(1.0, -11);
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::epsilon() / 2;
  return 0;
}
template <typename T>
double adding() {
  return std::is_same_v<T, double> ? rounding<double>() : rounding<float>();
}

/// The terms of one element, all ranks, from `first` on.
template <typename T>
void read_terms(const std::vector<std::vector<T>>& inputs,
                std::size_t first,
                std::size_t element,
                std::vector<T>& terms) {
  for (std::size_t i = 0; i < terms.size(); ++i) {
    terms[i] = inputs[(first + i) % inputs.size()][element];
  }
}

/// What the documentation promises, to the bit; finite values only.
template <typename T>
T promised(ReduceOp op, const std::vector<T>& terms) {
  using Sum = std::conditional_t<std::is_class_v<T>, float, T>;
  const auto wide = [](T value) {
    if constexpr (std::is_class_v<T>)
      return sim::widen(value);
    else
      return value;
  };
  Sum sum = wide(terms[0]);
  for (std::size_t i = 1; i < terms.size(); ++i) {
    const Sum next = wide(terms[i]);
    if (op == ReduceOp::kMin) {
      sum = std::min(sum, next);
    } else if (op == ReduceOp::kMax) {
      sum = std::max(sum, next);
    } else if constexpr (kIsInteger<T>) {
      sum = static_cast<T>(static_cast<std::uint64_t>(sum) + static_cast<std::uint64_t>(next));
    } else {
      sum = sum + next;
    }
  }
  if constexpr (!kIsInteger<T>) {
    if (op == ReduceOp::kMean) sum = sum / static_cast<Sum>(terms.size());
  }
  if constexpr (std::is_same_v<T, BFloat16>)
    return terms.size() > 1 ? sim::to_bfloat16(sum) : terms[0];
  if constexpr (std::is_same_v<T, Float16>)
    return terms.size() > 1 ? sim::to_float16(sum) : terms[0];
  if constexpr (!std::is_class_v<T>) return sum;
}

/// A loop in double, and how far the rounding of N - 1 additions, a division and a store may lead
/// away.
template <typename T>
void expect_near_the_exact_value(ReduceOp op, const std::vector<T>& terms, T got) {
  double value = exact(terms[0]);
  double magnitude = std::fabs(value);
  for (std::size_t i = 1; i < terms.size(); ++i) {
    const double next = exact(terms[i]);
    magnitude += std::fabs(next);
    if (op == ReduceOp::kMin) value = std::min(value, next);
    if (op == ReduceOp::kMax) value = std::max(value, next);
    if (op == ReduceOp::kSum || op == ReduceOp::kMean) value += next;
  }
  const auto n = static_cast<double>(terms.size());
  if (op == ReduceOp::kMean) {
    value /= n;
    magnitude /= n;
  }
  const double bound =
      1.01 * n * (adding<T>() + std::numeric_limits<double>::epsilon()) * magnitude +
      1.01 * rounding<T>() * std::fabs(value) + std::ldexp(1.0, -25);
  ASSERT_LE(std::fabs(exact(got) - value), bound);
}

/// The reduced buffer, when the sum of chunk c starts at rank c + 1 or, for relay, at rank 0.
template <typename T>
std::vector<T> reduced(ReduceOp op, const std::vector<std::vector<T>>& inputs, bool device_order) {
  std::vector<T> result;
  std::vector<T> terms(inputs.size());
  const int world = static_cast<int>(inputs.size());
  for (int c = 0; c < world; ++c) {
    const Range range = chunk(inputs[0].size(), world, c);
    for (std::uint64_t e = range.begin; e < range.end; ++e) {
      read_terms(inputs, device_order ? 0 : static_cast<std::size_t>(c + 1), e, terms);
      result.push_back(promised(op, terms));
      if constexpr (!kIsInteger<T>) expect_near_the_exact_value(op, terms, result.back());
    }
  }
  return result;
}

template <typename T>
void expect_bits(const std::vector<T>& got, const std::vector<T>& whole, Range part) {
  ASSERT_EQ(got.size(), part.size());
  if (got.empty()) return;
  EXPECT_EQ(std::memcmp(got.data(), whole.data() + part.begin, got.size() * sizeof(T)), 0);
}

void expect_formula(Algorithm algorithm,
                    Shape shape,
                    Dtype dtype,
                    const std::vector<sim::LinkTraffic>& links) {
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(shape.world));
  for (const auto& link : links) sent[static_cast<std::size_t>(link.from)] += link.bytes;
  std::uint64_t total = 0;
  std::uint64_t read = 0;
  for (shape.rank = 0; shape.rank < shape.world; ++shape.rank) {
    const std::uint64_t formula = formula_bytes_sent(algorithm, shape, dtype);
    if (!shape.windows) {
      EXPECT_EQ(sent[static_cast<std::size_t>(shape.rank)], formula);
    }
    total += formula;
    read += formula_bytes_read(algorithm, shape, dtype);
  }
  EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), std::uint64_t{0}), total + read);
  EXPECT_EQ(links, sim::count(algorithm, shape, dtype));
}

/// Runs one dish and compares every rank with `whole`.
template <typename T>
void expect_result(const Dish& dish,
                   Shape shape,
                   ReduceOp op,
                   const std::vector<std::vector<T>>& inputs,
                   const std::vector<T>& whole) {
  SCOPED_TRACE(::testing::Message()
               << name_of(dish.algorithm) << ' ' << name_of(dish.what) << ' ' << name_of(op) << ' '
               << shape.count << ' ' << name_of(dtype_of<T>()) << " over " << shape.world);
  const auto outcome = sim::execute<T>(dish.algorithm, shape, op, inputs);
  for (shape.rank = 0; shape.rank < shape.world; ++shape.rank) {
    const Range out = dish.what == Collective::kReduceScatter
                          ? chunk(shape.count, shape.world, shape.rank)
                          : Range{0, shape.count};
    expect_bits(outcome.results[static_cast<std::size_t>(shape.rank)], whole, out);
  }
  if (op == ReduceOp::kSum) expect_formula(dish.algorithm, shape, dtype_of<T>(), outcome.links);
}

/// Chunk r of rank r's input.
template <typename T>
std::vector<std::vector<T>> own_chunks(const std::vector<std::vector<T>>& inputs) {
  std::vector<std::vector<T>> chunks;
  const int world = static_cast<int>(inputs.size());
  for (int r = 0; r < world; ++r) {
    const auto& input = inputs[static_cast<std::size_t>(r)];
    const Range range = chunk(input.size(), world, r);
    chunks.emplace_back(input.begin() + static_cast<std::ptrdiff_t>(range.begin),
                        input.begin() + static_cast<std::ptrdiff_t>(range.end));
  }
  return chunks;
}

template <typename T>
std::vector<T> joined(const std::vector<std::vector<T>>& chunks) {
  std::vector<T> whole;
  for (const auto& part : chunks) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

template <typename T>
void expect_copies(int world, std::uint64_t count) {
  const auto inputs = sim::random_inputs<T>(world, count, count + 3);
  for (const Dish& dish : menu()) {
    const Shape shape{.what = dish.what,
                      .world = world,
                      .root = world / 2,
                      .count = count,
                      .windows = dish.windows};
    if (dish.what == Collective::kAllGather) {
      const auto chunks = own_chunks(inputs);
      expect_result(dish, shape, ReduceOp::kSum, chunks, joined(chunks));
    } else if (dish.what == Collective::kBroadcast) {
      expect_result(dish, shape, ReduceOp::kSum, inputs,
                    inputs[static_cast<std::size_t>(shape.root)]);
    }
  }
}

template <typename T>
void expect_reductions(int world, std::uint64_t count) {
  const auto inputs = sim::random_inputs<T>(world, count, count + 3);
  for (auto op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
    if (op == ReduceOp::kMean && kIsInteger<T>) continue;
    const std::vector<T> ring_order = reduced(op, inputs, false);
    const std::vector<T> device_order = reduced(op, inputs, true);
    for (const Dish& dish : menu()) {
      const Shape shape{.what = dish.what, .world = world, .count = count, .windows = dish.windows};
      if (dish.what != Collective::kAllReduce && dish.what != Collective::kReduceScatter) continue;
      expect_result(dish, shape, op, inputs,
                    dish.algorithm == Algorithm::kRelay ? device_order : ring_order);
    }
  }
}

template <typename T>
class Bits : public ::testing::Test {};
using Types =
    ::testing::Types<float, double, Float16, BFloat16, std::uint8_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(Bits, Types);

TYPED_TEST(Bits, of_reductions_are_those_of_a_plain_loop_whatever_the_algorithm) {
  for (int world = 1; world <= 17; ++world) {
    for (std::uint64_t count : odd_counts(world)) expect_reductions<TypeParam>(world, count);
  }
}

TYPED_TEST(Bits, of_copies_are_those_of_their_source) {
  for (int world = 1; world <= 17; ++world) {
    for (std::uint64_t count : odd_counts(world)) expect_copies<TypeParam>(world, count);
  }
}

TEST(RelayBits, differ_from_the_rings_because_it_adds_in_device_order) {
  const std::vector<std::vector<float>> inputs{{1e8F}, {1}, {-1e8F}};
  const Shape shape{.world = 3, .count = 1};  // chunk 0: the ring adds 1, -1e8, 1e8
  const auto first = [&](Algorithm algorithm) {
    return sim::execute<float>(algorithm, shape, ReduceOp::kSum, inputs).results[0][0];
  };
  EXPECT_EQ(first(Algorithm::kRing), (1 - 1e8F) + 1e8F);
  EXPECT_EQ(first(Algorithm::kRelay), (1e8F + 1) - 1e8F);
}

TEST(SpecialValues, have_the_same_bits_on_every_rank_and_for_every_algorithm) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = -std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> inputs{{0.0F, -0.0F, nan, 1.0F, inf, -inf, -0.0F},
                                               {-0.0F, 0.0F, 1.0F, nan, -inf, inf, -0.0F},
                                               {-0.0F, 0.0F, inf, 2.0F, 1.0F, inf, -0.0F}};
  for (auto op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
    const Shape shape{.world = 3, .count = 7};
    const auto ring = sim::execute<float>(Algorithm::kRing, shape, op, inputs).results;
    for (auto algorithm : {Algorithm::kRing, Algorithm::kPairwise, Algorithm::kOneStage,
                           Algorithm::kRelay, Algorithm::kDirect}) {
      for (const auto& result : sim::execute<float>(algorithm, shape, op, inputs).results) {
        expect_bits(result, ring[0], {0, 7});
      }
    }
    const float canonical = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(std::memcmp(&ring[0][2], &canonical, 4), 0);
    EXPECT_EQ(std::memcmp(&ring[0][3], &canonical, 4), 0);
    EXPECT_EQ(std::signbit(ring[0][0]), op == ReduceOp::kMin);
    EXPECT_TRUE(std::signbit(ring[0][6]));
  }
}

}  // namespace
}  // namespace paceline::plan
