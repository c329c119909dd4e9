// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Runs calls in sim::World in some order and tells what went wrong. Used by the quick test and the
/// sweep.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "paceline/sim/broken_rule.h"
#include "paceline/sim/world.h"
#include "tests/plan/menu.h"
#include "tests/sim/values.h"

namespace paceline::sim {

inline constexpr Choice kChoices[] = {Choice::kRandom, Choice::kStarveRanks, Choice::kStarveCalls,
                                      Choice::kStarveLanes};

inline std::string text_of(const Call& call) {
  return std::string(name_of(call.algorithm)) + " " + std::string(name_of(call.what)) + " " +
         std::to_string(call.count) + " " + std::string(name_of(call.dtype));
}

/// Runs `calls` at once and compares results and traffic with plain execution, one by one. Returns
/// what went wrong, or nothing.
inline std::string trouble_in(int world,
                              const std::vector<Call>& calls,
                              const WorldOptions& options) {
  World all(world, calls, options);
  std::vector<UntypedOutcome> expected;
  for (std::size_t k = 0; k < calls.size(); ++k) {
    plan::Shape shape{.what = calls[k].what,
                      .world = world,
                      .root = calls[k].root,
                      .count = calls[k].count,
                      .windows = calls[k].windows,
                      .slices = calls[k].slices};
    const auto full = random_inputs(calls[k].dtype, world, shape.count, options.seed + k);
    std::vector<std::span<const std::byte>> inputs;
    for (shape.rank = 0; shape.rank < world; ++shape.rank) {
      const Range in = plan::make_schedule(calls[k].algorithm, shape).in;
      inputs.push_back(slice(full[static_cast<std::size_t>(shape.rank)], in, calls[k].dtype));
      all.set_input(k, shape.rank, inputs.back());
    }
    expected.push_back(
        execute_untyped(calls[k].algorithm, shape, calls[k].dtype, calls[k].op, inputs));
  }
  try {
    all.run();
  } catch (const BrokenRule& broken) {
    return broken.what();
  }
  for (std::size_t k = 0; k < calls.size(); ++k) {
    for (int r = 0; r < world; ++r) {
      if (all.result(k, r) != expected[k].results[static_cast<std::size_t>(r)])
        return "wrong result";
    }
    if (!calls[k].plan && all.links(k) != expected[k].links) return "wrong traffic";
  }
  return {};
}

inline WorldOptions options_for(std::uint64_t seed) {
  return {.capacity = seed % 3 == 0 ? 1 + seed % 8 : 1,
          .max_frame = 1 + seed % 9,
          .choice = kChoices[seed % 4],
          .flags_as_frames = seed % 8 < 4,
          .overtaking = seed % 5 == 0,
          .rules = {},
          .seed = seed};
}

/// Whose memory the others reach: all, none or some.
inline std::vector<bool> some_resident(int world, std::uint64_t seed) {
  std::vector<bool> resident(static_cast<std::size_t>(world), seed % 3 == 0);
  for (std::size_t r = 0; r < resident.size() && seed % 3 == 2; ++r) {
    resident[r] = (seed >> (3 + r % 50)) % 2 == 0;
  }
  return resident;
}

inline void expect_single_calls_work(int first_world, int last_world, std::uint64_t repeats) {
  std::uint64_t seed = 0;
  for (int world = first_world; world <= last_world; ++world) {
    for (std::uint64_t count : plan::odd_counts(world)) {
      for (const auto& dish : plan::menu()) {
        for (std::uint64_t i = 0; i < repeats; ++i) {
          WorldOptions options = options_for(++seed);
          if (count > 150) options.max_frame = 40 + seed % 300;
          const Call call{.what = dish.what,
                          .algorithm = dish.algorithm,
                          .dtype = seed % 2 == 0 ? Dtype::kF32 : Dtype::kBF16,
                          .op = ReduceOp::kMean,
                          .root = world / 2,
                          .count = count,
                          .windows = dish.windows,
                          .resident = some_resident(world, seed),
                          .slices = 1 + static_cast<std::uint32_t>(seed % 5),
                          .plan = {}};
          ASSERT_EQ(trouble_in(world, {call}, options), "")
              << text_of(call) << " over " << world << " ranks, seed " << seed;
        }
      }
    }
  }
}

/// Several calls, anything from the menu.
inline std::vector<Call> mix(int world, std::size_t size, Random& random) {
  const auto menu = plan::menu();
  const auto counts = plan::odd_counts(world);
  std::vector<Call> calls;
  for (std::size_t i = 0; i < size; ++i) {
    const auto dish = menu[random.below(menu.size())];
    calls.push_back({.what = dish.what,
                     .algorithm = dish.algorithm,
                     .dtype = random.flip() ? Dtype::kF32 : Dtype::kBF16,
                     .op = random.flip() ? ReduceOp::kMean : ReduceOp::kSum,
                     .root = static_cast<int>(random.below(static_cast<std::uint64_t>(world))),
                     .count = std::min<std::uint64_t>(100, counts[random.below(counts.size())]),
                     .windows = dish.windows,
                     .resident = some_resident(world, random.next()),
                     .slices = 1 + static_cast<std::uint32_t>(random.below(5)),
                     .plan = {}});
  }
  return calls;
}

/// Runs `runs` mixes; returns how often which trouble was seen.
inline std::map<std::string, int> troubles_in_mixes(std::uint64_t runs, const Rules& rules) {
  Random random(7);
  std::map<std::string, int> troubles;
  for (std::uint64_t i = 0; i < runs; ++i) {
    const int world = 2 + static_cast<int>(i % 5);
    const auto calls = mix(world, 1 + i % 4, random);
    WorldOptions options = options_for(i + 1);
    options.max_frame = 1 + i % 40;
    options.rules = rules;
    const std::string trouble = trouble_in(world, calls, options);
    if (!trouble.empty()) ++troubles[trouble];
  }
  return troubles;
}

}  // namespace paceline::sim
