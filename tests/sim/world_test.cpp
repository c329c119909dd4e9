// SPDX-License-Identifier: Apache-2.0
// Any interleaving that the rules allow gives the result of plain execution; and each rule is
// needed.
#include "paceline/sim/world.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "paceline/base/error.h"
#include "paceline/sim/broken_rule.h"
#include "tests/plan/menu.h"
#include "tests/sim/values.h"

namespace paceline::sim {
namespace {

constexpr Choice kChoices[] = {Choice::kRandom, Choice::kStarveRanks, Choice::kStarveCalls,
                               Choice::kStarveLanes};

std::string text_of(const Call& call) {
  return std::string(name_of(call.algorithm)) + " " + std::string(name_of(call.what)) + " " +
         std::to_string(call.count) + " " + std::string(name_of(call.dtype));
}

/// Runs `calls` at once and compares results and traffic with plain execution, one by one. Returns
/// what went wrong, or nothing.
std::string trouble_in(int world, const std::vector<Call>& calls, const WorldOptions& options) {
  World all(world, calls, options);
  std::vector<UntypedOutcome> expected;
  for (std::size_t k = 0; k < calls.size(); ++k) {
    plan::Shape shape{
        .what = calls[k].what, .world = world, .root = calls[k].root, .count = calls[k].count};
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

WorldOptions options_for(std::uint64_t seed) {
  return {.capacity = seed % 3 == 0 ? 1 + seed % 8 : 1,
          .max_frame = 1 + seed % 9,
          .choice = kChoices[seed % 4],
          .flags_as_frames = seed % 8 < 4,
          .overtaking = seed % 5 == 0,
          .rules = {},
          .seed = seed};
}

void expect_single_calls_work(int first_world, int last_world, std::uint64_t repeats) {
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
                          .plan = {}};
          ASSERT_EQ(trouble_in(world, {call}, options), "")
              << text_of(call) << " over " << world << " ranks, seed " << seed;
        }
      }
    }
  }
}

TEST(World, finishes_every_single_call_in_any_order_with_one_frame_per_link) {
  expect_single_calls_work(1, 6, 2);
  expect_single_calls_work(7, 9, 1);
}

/// Several calls, anything from the menu.
std::vector<Call> mix(int world, std::size_t size, Random& random) {
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
                     .plan = {}});
  }
  return calls;
}

/// Runs `runs` mixes; returns how often which trouble was seen.
std::map<std::string, int> troubles_in_mixes(std::uint64_t runs, const Rules& rules) {
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

TEST(World, finishes_several_calls_in_flight_in_any_order) {
  const auto troubles = troubles_in_mixes(200, {});
  EXPECT_TRUE(troubles.empty()) << troubles.begin()->first;
}

struct Dropped {
  const char* name;
  bool Rules::*rule;
  const char* trouble;
};

class DroppedRule : public ::testing::TestWithParam<Dropped> {};

TEST_P(DroppedRule, is_noticed) {
  Rules rules;
  rules.*GetParam().rule = false;
  int noticed = 0;
  for (const auto& [trouble, times] : troubles_in_mixes(200, rules)) {
    if (trouble.find(GetParam().trouble) != std::string::npos) noticed += times;
  }
  EXPECT_GT(noticed, 0);
}

INSTANTIATE_TEST_SUITE_P(
    World,
    DroppedRule,
    ::testing::Values(Dropped{"calls_in_sequence", &Rules::calls_in_sequence, "deadlock"},
                      Dropped{"messages_in_program_order", &Rules::messages_in_program_order,
                              "meets message"},
                      Dropped{"write_after_read", &Rules::write_after_read, "wrong result"},
                      Dropped{"one_memory", &Rules::one_memory, "wrong result"},
                      Dropped{"flags_write", &Rules::flags_write, "left a barrier"}),
    [](const auto& tested) { return std::string(tested.param.name); });

// An all-reduce by windows, as shared memory will do it: everybody reads all of everybody's chunk
// r.
plan::Schedule direct(const plan::Shape& shape, bool last_flag) {
  const auto n = static_cast<std::uint16_t>(shape.world);
  const auto r = static_cast<std::uint16_t>(shape.rank);
  const plan::Ranks everybody{0, n};
  const Range all{0, shape.count};
  plan::Schedule s;
  s.in = s.out = all;
  const auto meet = [&](std::uint16_t flag) {
    s.steps.push_back({.kind = plan::Kind::kPost, .flag = flag, .to = everybody, .elements = all});
    s.steps.push_back(
        {.kind = plan::Kind::kAwait, .flag = flag, .from = everybody, .elements = all});
  };
  meet(0);
  const Range own = plan::chunk(shape.count, shape.world, r);
  if (!own.empty()) {
    s.steps.push_back({.kind = plan::Kind::kFold,
                       .src = plan::Memory::kIn,
                       .dst = plan::Memory::kOut,
                       .from = {static_cast<std::uint16_t>((r + 1) % n), n},
                       .to = {r, n},
                       .elements = own});
  }
  if (last_flag) meet(1);
  return s;
}

std::map<std::string, int> troubles_of_direct(bool last_flag, const Rules& rules) {
  std::map<std::string, int> troubles;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    const int world = 2 + static_cast<int>(seed % 4);
    const Call call{.dtype = Dtype::kF32,
                    .op = ReduceOp::kMean,
                    .count = 23,
                    .plan = [&](const plan::Shape& shape) { return direct(shape, last_flag); }};
    WorldOptions options = options_for(seed);
    options.rules = rules;
    const std::string trouble = trouble_in(world, {call, call, call}, options);
    if (!trouble.empty()) ++troubles[trouble];
  }
  return troubles;
}

TEST(World, can_run_windows_that_the_schedules_of_this_version_do_not_use_yet) {
  const auto troubles = troubles_of_direct(true, {});
  EXPECT_TRUE(troubles.empty()) << troubles.begin()->first;
}

TEST(World, notices_a_window_touched_after_its_owners_call) {
  for (const auto& [trouble, times] : troubles_of_direct(false, {})) {
    if (trouble.find("outside of its call") != std::string::npos) return;
  }
  FAIL() << "nobody noticed";
}

TEST(World, notices_posts_out_of_sequence) {
  Rules rules;
  rules.posts_in_sequence = false;
  EXPECT_FALSE(troubles_of_direct(true, rules).empty());
}

/// The schedules of a ring of 3, one step of rank 1 changed.
std::string complaint_about(std::size_t step, const std::function<void(plan::Step&)>& change) {
  const Call call{.count = 9, .plan = [&](const plan::Shape& shape) {
                    plan::Schedule s = plan::make_schedule(Algorithm::kRing, shape);
                    if (shape.rank == 1) change(s.steps.at(step));
                    return s;
                  }};
  try {
    World world(3, {call}, {});
    return "nothing";
  } catch (const BrokenRule& broken) {
    return broken.what();
  }
}

TEST(World, says_which_message_nobody_expects) {
  EXPECT_EQ(complaint_about(0,
                            [](plan::Step& s) {
                              s.elements = {0, 2};
                            }),
            "message 0 from rank 1 to rank 2: 'send [0, 2) peer 2' meets 'recv [0, 3) peer 1'");
  EXPECT_EQ(complaint_about(2, [](plan::Step& s) { s.wire = Form::kT; }),
            "message 1 from rank 1 to rank 2: 'send [6, 9) peer 2' meets "
            "'recv [6, 9) as sums peer 1'");
  EXPECT_EQ(complaint_about(0, [](plan::Step& s) { s.peer = 1; }),
            "rank 1: send [0, 3) peer 1: no such peer");
}

TEST(World, refuses_an_input_of_the_wrong_size) {
  World world(2, {{.count = 4, .plan = {}}}, {});
  EXPECT_THROW(world.run(), UsageError);
  EXPECT_THROW(World(0, {}, {}), UsageError);
}

TEST(World, notices_ranks_that_wait_for_each_other) {
  // Both ranks receive before they send, and what they send is what they received.
  const Call call{.count = 4, .plan = [](const plan::Shape& shape) {
                    const auto peer = static_cast<std::uint16_t>(1 - shape.rank);
                    const auto self = static_cast<std::uint16_t>(shape.rank);
                    plan::Schedule s;
                    s.out = {0, 4};
                    s.steps.push_back({.kind = plan::Kind::kRecv,
                                       .dst = plan::Memory::kOut,
                                       .peer = peer,
                                       .to = {self, 1},
                                       .elements = {0, 4}});
                    s.steps.push_back({.kind = plan::Kind::kSend,
                                       .src = plan::Memory::kOut,
                                       .peer = peer,
                                       .elements = {0, 4}});
                    return s;
                  }};
  World world(2, {call}, {});
  try {
    world.run();
    FAIL() << "it ended";
  } catch (const BrokenRule& broken) {
    EXPECT_STREQ(broken.what(), "deadlock");
  }
}

}  // namespace
}  // namespace paceline::sim
