// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace paceline::apps {
namespace {

constexpr int kLargestWorld = 1024;
constexpr int kLargestWalk = 8;  // more ranks would not fit on a screen

std::vector<double> losses_of(const Measurement& measurement) {
  std::vector<double> losses(measurement.processes.front().steps.size());
  for (const ProcessRecord& process : measurement.processes) {
    for (std::size_t step = 0; step < losses.size(); ++step) {
      losses[step] += process.steps[step].loss;
    }
  }
  for (double& loss : losses) loss /= static_cast<double>(measurement.processes.size());
  return losses;
}

/// The step that took the time nearest to the median.
std::size_t nearest(const std::vector<double>& times, double median) {
  const auto found =
      std::ranges::min_element(times, {}, [&](double time) { return std::abs(time - median); });
  return static_cast<std::size_t>(found - times.begin());
}

RunResult result_of(const Measurement& measurement, std::int64_t batch_size) {
  RunResult run{.contestant = measurement.contestant, .count = measurement.count};
  run.step_times_ms = step_times_ms(measurement);
  run.step_ms = spread_of(run.step_times_ms);
  run.samples_per_s = static_cast<double>(batch_size) / run.step_ms.median * 1e3;
  run.traffic = traffic_of(measurement);
  run.formula = formula_of(measurement);
  run.communication = communication_of(measurement);
  run.device0_peak_bytes = measurement.processes.front().peak_bytes.front();
  run.losses = losses_of(measurement);
  run.buckets = measurement.processes.front().buckets;
  run.median_step = nearest(run.step_times_ms, run.step_ms.median);
  run.timeline = timeline_of_step(measurement, run.median_step);
  return run;
}

std::uint64_t largest(const std::vector<std::uint64_t>& bytes) {
  return *std::ranges::max_element(bytes);
}

std::optional<std::uint64_t> measured(const RunResult* run) {
  if (run == nullptr) return std::nullopt;
  std::uint64_t most = 0;
  for (const ParticipantBytes& one : run->traffic.participants) most = std::max(most, one.both());
  return most;
}

/// What rank 0 or device 0 of `world` holds, from what it held when `run` was measured: only the
/// share of `output_bytes` that it computes itself changes with the number.
std::uint64_t held_at(const RunResult& run, int world, std::uint64_t output_bytes) {
  const auto share = [&](int n) { return output_bytes / static_cast<std::uint64_t>(n); };
  return run.device0_peak_bytes - share(run.contestant.ranks) + share(world);
}

ScaleRow scale_row(const Comparison& comparison, int world, std::uint64_t output_bytes) {
  const RunResult& dp = *find_run(comparison, Mechanism::kDp);
  const RunResult& ddp = *find_run(comparison, Mechanism::kDdp);
  const std::uint64_t model = comparison.facts.trainable_bytes;
  return {.ranks = world,
          .dp = {.formula = largest(dp_formula(model, world)),
                 .simulated = largest(dp_simulated(model, world)),
                 .measured = measured(find_run(comparison, Mechanism::kDp, world))},
          .ddp = {.formula = largest(ddp_formula(ddp.buckets, world)),
                  .simulated = largest(ddp_simulated(ddp.buckets, world)),
                  .measured = measured(find_run(comparison, Mechanism::kDdp, world))},
          .dp_device0_bytes = held_at(dp, world, output_bytes),
          .ddp_rank0_bytes = held_at(ddp, world, output_bytes)};
}

std::vector<ScaleRow> scale_of(const Comparison& comparison) {
  const RunResult& single = *find_run(comparison, Mechanism::kSingle);
  const std::uint64_t output_bytes =
      single.device0_peak_bytes - 2 * comparison.facts.trainable_bytes;
  std::set<int> worlds(comparison.options.ranks.begin(), comparison.options.ranks.end());
  for (int world = 2; world <= kLargestWorld; world *= 2) worlds.insert(world);
  std::vector<ScaleRow> rows;
  for (const int world : worlds) rows.push_back(scale_row(comparison, world, output_bytes));
  return rows;
}

/// The largest bucket, round the largest ring that was measured and can be shown.
RingWalk ring_of(const Comparison& comparison) {
  int ranks = 2;
  for (const int world : comparison.options.ranks) {
    if (world <= kLargestWalk) ranks = std::max(ranks, world);
  }
  const auto& buckets = find_run(comparison, Mechanism::kDdp)->buckets;
  return walk_ring(*std::ranges::max_element(buckets, {}, &BucketFacts::count), ranks);
}

double largest_difference(const std::vector<RunResult>& runs) {
  const std::vector<double>& expected = runs.front().losses;
  double largest = 0;
  for (const RunResult& run : runs) {
    for (std::size_t step = 0; step < std::min(expected.size(), kJudgedSteps); ++step) {
      const double difference = std::abs(run.losses[step] - expected[step]);
      largest = std::max(largest, difference / std::max(std::abs(expected[step]), kLeastLoss));
    }
  }
  return largest;
}

}  // namespace

Comparison compare(const CompareOptions& options,
                   const std::vector<Measurement>& measurements,
                   double load_before) {
  Comparison comparison{.options = options, .load_before = load_before};
  comparison.facts = measurements.front().processes.front().facts;
  for (const Measurement& measurement : measurements) {
    comparison.runs.push_back(result_of(measurement, options.batch_size));
  }
  const double single = find_run(comparison, Mechanism::kSingle)->step_ms.median;
  for (RunResult& run : comparison.runs) run.speed_up = single / run.step_ms.median;
  comparison.scale = scale_of(comparison);
  comparison.ring = ring_of(comparison);
  comparison.largest_loss_difference = largest_difference(comparison.runs);
  comparison.losses_agree = comparison.largest_loss_difference <= kLossTolerance;
  return comparison;
}

const RunResult* find_run(const Comparison& comparison, Mechanism mechanism, int ranks) {
  const RunResult* found = nullptr;
  for (const RunResult& run : comparison.runs) {
    if (run.contestant.mechanism != mechanism) continue;
    if (ranks != 0 && run.contestant.ranks != ranks) continue;
    if (found == nullptr || run.step_ms.median < found->step_ms.median) found = &run;
  }
  return found;
}

}  // namespace paceline::apps
