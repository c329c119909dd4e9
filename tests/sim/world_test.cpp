// SPDX-License-Identifier: Apache-2.0
// Any interleaving that the rules allow gives the result of plain execution; and each rule is
// needed.
#include "paceline/sim/world.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "paceline/base/error.h"
#include "paceline/sim/broken_rule.h"
#include "tests/sim/trouble.h"

namespace paceline::sim {
namespace {

TEST(World, finishes_every_single_call_in_any_order_with_one_frame_per_link) {
  expect_single_calls_work(1, 6, 2);
  expect_single_calls_work(7, 9, 1);
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

// An all-reduce by windows as small as it can be: everybody reads all of everybody's chunk r.
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

/// How an all-reduce through stages ends, its schedules changed, and how often so.
std::map<std::string, int> troubles_of_stages(const std::function<void(plan::Schedule&)>& change) {
  std::map<std::string, int> troubles;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Call call{
        .algorithm = Algorithm::kDirect, .count = 40, .slices = 5, .plan = [&](plan::Shape shape) {
          shape.resident = false;
          plan::Schedule s = plan::make_schedule(Algorithm::kDirect, shape);
          change(s);
          return s;
        }};
    ++troubles[trouble_in(3, {call}, options_for(seed))];
  }
  return troubles;
}

TEST(World, notices_a_stage_that_is_one_slot_too_small) {
  const auto troubles = troubles_of_stages([](plan::Schedule& s) { --s.stage.slots; });
  EXPECT_TRUE(troubles.contains("wrong result"));
  EXPECT_EQ(troubles_of_stages([](plan::Schedule&) {}), (std::map<std::string, int>{{"", 40}}));
}

TEST(World, notices_a_slot_that_is_taken_before_it_is_free) {
  const auto troubles = troubles_of_stages([](plan::Schedule& s) {
    std::erase_if(s.steps, [](const plan::Step& step) {
      return step.kind == plan::Kind::kAwait && step.from.size == 0;
    });
  });
  EXPECT_TRUE(troubles.contains("wrong result"));
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
