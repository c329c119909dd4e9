// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// All that a comparison found out, from the measurements. Plain data, from which table, JSON and
/// report are made.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/compare/ring_walk.h"
#include "apps/compare/timing.h"
#include "apps/compare/traffic.h"

namespace paceline::apps {

/// One contestant.
struct RunResult {
  Contestant contestant = {};
  Spread step_ms = {};
  double samples_per_s = 0;  ///< batch by median step
  double speed_up = 0;       ///< over one thread
  ProcessCount count = {};
  StepTraffic traffic = {};
  TrafficFormula formula = {};
  std::optional<Communication> communication = {};  ///< nothing if nothing was sent
  std::uint64_t device0_peak_bytes = 0;
  std::vector<double> losses = {};  ///< per step, mean over all samples
  std::vector<double> step_times_ms = {};
  std::vector<BucketFacts> buckets = {};
  std::size_t median_step = 0;
  TraceRun timeline = {};  ///< of that step
};

/// The busiest participant's bytes per step, sent + received.
struct Counted {
  std::uint64_t formula = 0;
  std::uint64_t simulated = 0;
  std::optional<std::uint64_t> measured = {};
};

/// One number of ranks.
struct ScaleRow {
  int ranks = 0;
  Counted dp = {};
  Counted ddp = {};
  std::uint64_t dp_device0_bytes = 0;  ///< parameters, gradients and outputs held there, counted
  std::uint64_t ddp_rank0_bytes = 0;
};

struct Comparison {
  CompareOptions options = {};
  double load_before = 0;  ///< of the machine, before anything was started
  ModelFacts facts = {};
  std::vector<RunResult> runs = {};  ///< in the order of contestants_for()
  std::vector<ScaleRow> scale = {};  ///< 2, 4, … 1,024 and the numbers that were measured
  RingWalk ring = {};
  double largest_loss_difference = 0;  ///< relative, to one thread, in the steps judged
  bool losses_agree = false;
};

/// Losses may differ by so much, relatively. Sums in another order differ by 1e-7; in 60 steps
/// training made up to 5e-4 of that. A gradient that is wrong by a factor or a bucket gives far
/// more.
inline constexpr double kLossTolerance = 5e-3;
/// Only so many steps are judged: rounding goes on growing.
inline constexpr std::size_t kJudgedSteps = 60;
/// Differences are relative to the loss, or to this if it is smaller.
inline constexpr double kLeastLoss = 0.1;

/// Errors  std::logic_error if a ledger contradicts itself.
[[nodiscard]] Comparison compare(const CompareOptions& options,
                                 const std::vector<Measurement>& measurements,
                                 double load_before = 0);

/// The run of that kind; the fastest if `ranks` is 0. Null if there is none.
[[nodiscard]] const RunResult* find_run(const Comparison& comparison,
                                        Mechanism mechanism,
                                        int ranks = 0);

}  // namespace paceline::apps
