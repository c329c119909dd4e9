// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Trains every contestant in one run, in turns.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/compare/options.h"
#include "apps/compare/process_count.h"
#include "apps/compare/record.h"

namespace paceline::apps {

/// What a contestant's processes measured.
struct Measurement {
  Contestant contestant = {};
  ProcessCount count = {};                    ///< while it trained
  std::vector<ProcessRecord> processes = {};  ///< by rank; one unless it is DDP
};

/// Steps before those that are measured: memory is touched, DDP's buckets take their final order.
inline constexpr std::int64_t kWarmUpSteps = 2;

/// How far a run has come.
struct Standing {
  std::int64_t turn = 0;  ///< of all contestants together, from 0
  std::int64_t turns = 0;
  std::string what = {};  ///< "DDP, 2 ranks, step 10 of 20: loss 0.62"
};

/// Starts all, lets them warm up, then gives each a few steps at a time, forwards and backwards
/// through the list, so that a busy moment of the machine does not
/// fall on one of them alone.
///
/// Errors  std::runtime_error that names the contestant that failed, and why.
[[nodiscard]] std::vector<Measurement> train_all(
    const CompareOptions& options, const std::function<void(const Standing&)>& progress);

/// What one of them is told.
[[nodiscard]] TrainingSettings settings_for(const CompareOptions& options,
                                            const Contestant& contestant);

}  // namespace paceline::apps
