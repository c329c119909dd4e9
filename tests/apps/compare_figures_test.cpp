// SPDX-License-Identifier: Apache-2.0
// Bytes and times of a comparison, from records that are made up.
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "tests/apps/compare_sample.h"

namespace paceline::apps {
namespace {

std::vector<std::uint64_t> both(const StepTraffic& traffic) {
  std::vector<std::uint64_t> bytes;
  for (const ParticipantBytes& one : traffic.participants) bytes.push_back(one.both());
  return bytes;
}

TEST(Traffic, of_dp_is_the_copies_of_parameters_and_gradients) {
  const Measurement measurement = sample::dp(3, 45);
  const StepTraffic traffic = traffic_of(measurement);
  EXPECT_EQ(both(traffic), (std::vector<std::uint64_t>{160, 80, 80}));
  EXPECT_EQ(both(traffic), formula_of(measurement).participants);
  EXPECT_EQ(traffic.participants[0].sent, 80U);
  EXPECT_EQ(traffic.scatter_bytes, 14U);
  EXPECT_EQ(traffic.gather_bytes, 16U);
  EXPECT_EQ(traffic.links.size(), 4U);
  EXPECT_TRUE(traffic.per_link.empty());
}

TEST(Traffic, of_ddp_is_its_buckets_and_nothing_else) {
  const Measurement measurement = sample::ddp(3, 30);
  const StepTraffic traffic = traffic_of(measurement);
  const TrafficFormula formula = formula_of(measurement);
  EXPECT_EQ(both(traffic), formula.participants);
  EXPECT_EQ(traffic.per_link, formula.per_link);
  EXPECT_EQ(std::accumulate(traffic.per_link.begin(), traffic.per_link.end(), 0U),
            2 * 2 * sample::kModelBytes);
  EXPECT_EQ(traffic.messages, 12U);
  EXPECT_EQ(traffic.header_bytes, 12U * 56U);
  EXPECT_EQ(traffic.participants[0].name, "rank 0");
}

TEST(Traffic, of_one_process_is_nothing) {
  EXPECT_TRUE(traffic_of(sample::single(60)).participants.empty());
  EXPECT_TRUE(formula_of(sample::single(60)).participants.empty());
}

TEST(Traffic, of_steps_that_differ_is_an_error_of_ours) {
  Measurement measurement = sample::dp(2, 45);
  measurement.processes[0].ledger.copies[0].bytes += 1;
  EXPECT_THROW((void)traffic_of(measurement), std::logic_error);
}

TEST(Traffic, of_a_ledger_that_is_not_whole_is_an_error_of_ours) {
  Measurement measurement = sample::ddp(2, 30);
  measurement.processes[1].ledger.left_out = 4;
  EXPECT_THROW((void)traffic_of(measurement), std::logic_error);
}

TEST(Traffic, formulas_are_what_the_simulator_counts) {
  const std::vector<BucketFacts> buckets{
      {.label = "a", .count = 1003},
      {.label = "b", .count = 5, .algorithm = Algorithm::kOneStage},
      {.label = "c", .count = 77, .algorithm = Algorithm::kPairwise},
      {.label = "d", .count = 9, .algorithm = Algorithm::kRelay}};
  for (int world = 2; world <= 9; ++world) {
    EXPECT_EQ(ddp_formula(buckets, world), ddp_simulated(buckets, world)) << world;
    EXPECT_EQ(dp_formula(4012, world), dp_simulated(4012, world)) << world;
  }
}

TEST(Traffic, of_other_algorithms_has_no_formula_per_edge) {
  Measurement measurement = sample::ddp(2, 30);
  for (auto& process : measurement.processes) process.buckets[0].algorithm = Algorithm::kOneStage;
  const TrafficFormula formula = formula_of(measurement);
  EXPECT_TRUE(formula.per_link.empty());
  EXPECT_NE(formula.text.find("one_stage"), std::string::npos);
}

TEST(Spread, interpolates_between_neighbours) {
  const Spread spread = spread_of({5, 1, 2, 4, 3});
  EXPECT_DOUBLE_EQ(spread.median, 3);
  EXPECT_DOUBLE_EQ(spread.p10, 1.4);
  EXPECT_DOUBLE_EQ(spread.p90, 4.6);
  EXPECT_DOUBLE_EQ(spread_of({7}).p90, 7);
}

TEST(StepTimes, last_until_the_slowest_rank_is_done) {
  EXPECT_EQ(step_times_ms(sample::ddp(3, 30)), (std::vector<double>{32, 32}));
}

TEST(Communication, is_hidden_while_gradients_are_being_computed) {
  const auto cost = communication_of(sample::ddp(2, 30));
  ASSERT_TRUE(cost.has_value());
  EXPECT_DOUBLE_EQ(cost->ms, 4);
  EXPECT_DOUBLE_EQ(cost->hidden_ms, 2);
  EXPECT_DOUBLE_EQ(cost->share_hidden(), 0.5);
}

TEST(Communication, of_dp_counts_copies_at_the_same_time_once_and_hides_none) {
  const auto cost = communication_of(sample::dp(3, 45));
  ASSERT_TRUE(cost.has_value());
  EXPECT_DOUBLE_EQ(cost->ms, 4);  // 2 ms out, 2 ms back
  EXPECT_DOUBLE_EQ(cost->share_hidden(), 0);
  EXPECT_FALSE(communication_of(sample::single(60)).has_value());
}

TEST(Timeline, of_a_step_has_a_lane_per_rank_and_leaves_other_steps_out) {
  const TraceRun run = timeline_of_step(sample::ddp(2, 30), 1);
  EXPECT_EQ(run.name, "DDP, 2 ranks");
  ASSERT_EQ(run.lanes.size(), 2U);
  EXPECT_EQ(run.lanes[1].name, "rank 1");
  std::vector<std::string> kinds;
  for (const TraceSpan& span : run.lanes[0].spans) {
    kinds.push_back(span.kind);
    EXPECT_GE(span.begin_us, 0);
    EXPECT_LE(span.end_us, 31e3);
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"backward", "allreduce", "wait", "step"}));
  EXPECT_EQ(run.lanes[0].spans[1].bytes, 40U);
  EXPECT_EQ(timeline_of(sample::ddp(2, 30)).lanes[0].spans.size(), 8U);
}

TEST(Timeline, of_dp_draws_a_copy_on_the_other_devices_lane) {
  const TraceRun run = timeline_of_step(sample::dp(2, 45), 0);
  ASSERT_EQ(run.lanes.size(), 2U);
  EXPECT_EQ(run.lanes[0].spans.size(), 3U);  // forward, backward, step
  EXPECT_EQ(run.lanes[1].spans.size(), 6U);
  EXPECT_EQ(timeline_of_step(sample::single(60), 0).lanes[0].spans.size(), 3U);
}

TEST(RingWalk, takes_every_chunk_round_twice_but_for_the_last_hops) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (const std::uint64_t count : {1003U, 3U}) {
      const RingWalk walk = walk_ring({.label = "b", .count = count}, ranks);
      ASSERT_EQ(walk.steps.size(), static_cast<std::size_t>(2 * (ranks - 1)));
      std::vector<int> sent(static_cast<std::size_t>(ranks));
      for (const auto& step : walk.steps) {
        ASSERT_EQ(step.size(), static_cast<std::size_t>(ranks));
        for (const RingSend& send : step) {
          EXPECT_EQ(send.to, (send.from + 1) % ranks);
          EXPECT_EQ(send.elements, walk.chunks[static_cast<std::size_t>(send.chunk)]);
          ++sent[static_cast<std::size_t>(send.chunk)];
        }
      }
      EXPECT_EQ(sent, std::vector<int>(static_cast<std::size_t>(ranks), 2 * (ranks - 1)));
    }
  }
}

TEST(Compare, finds_speed_ups_scale_and_agreement) {
  const Comparison found = compare(sample::options({2, 3}), sample::measurements());
  ASSERT_EQ(found.runs.size(), 6U);
  EXPECT_DOUBLE_EQ(found.runs[0].speed_up, 1);
  EXPECT_DOUBLE_EQ(found.runs[1].speed_up, 1.5);
  EXPECT_DOUBLE_EQ(found.runs[1].samples_per_s, 300);
  EXPECT_TRUE(found.losses_agree);
  EXPECT_EQ(find_run(found, Mechanism::kDdp)->contestant.ranks, 3);
  EXPECT_EQ(find_run(found, Mechanism::kDdp, 7), nullptr);
  ASSERT_EQ(found.scale.size(), 11U);  // 2, 3, 4, 8, … 1,024
  for (const ScaleRow& row : found.scale) {
    EXPECT_EQ(row.dp.measured.has_value(), row.ranks <= 3) << row.ranks;
    for (const Counted& one : {row.dp, row.ddp}) {
      EXPECT_EQ(one.formula, one.simulated) << row.ranks;
      EXPECT_EQ(one.measured.value_or(one.formula), one.formula) << row.ranks;
    }
  }
  EXPECT_EQ(found.ring.ranks, 3);
}

TEST(Compare, counts_memory_as_it_was_measured_with_other_numbers) {
  const Comparison found = compare(sample::options({2, 3}), sample::measurements());
  EXPECT_EQ(found.scale[0].dp_device0_bytes, 3 * sample::kModelBytes + 24 + 12);
  EXPECT_EQ(found.scale[1].dp_device0_bytes, 3 * sample::kModelBytes + 24 + 8);
  EXPECT_EQ(found.scale[0].ddp_rank0_bytes, 2 * sample::kModelBytes + 12);
}

TEST(Compare, sees_losses_that_differ) {
  auto measurements = sample::measurements();
  measurements[2].processes[0].steps[1].loss = 1.01;
  const Comparison found = compare(sample::options({2, 3}), measurements);
  EXPECT_FALSE(found.losses_agree);
  EXPECT_NEAR(found.largest_loss_difference, 0.01, 1e-9);
}

TEST(Compare, judges_losses_near_zero_and_of_long_runs_with_patience) {
  auto measurements = sample::measurements();
  for (Measurement& one : measurements) {
    for (auto& process : one.processes) process.steps[1].loss = 1e-5;
  }
  measurements[2].processes[0].steps[1].loss = 2e-5;
  EXPECT_TRUE(compare(sample::options({2, 3}), measurements).losses_agree);
}

}  // namespace
}  // namespace paceline::apps
