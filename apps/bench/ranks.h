// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The ranks of a bench: processes under our own launcher, or threads.

#include <functional>
#include <string>

#include "apps/bench/measure.h"
#include "apps/bench/options.h"
#include "apps/bench/report.h"

namespace paceline::apps {

/// Hears what rank 0 finds, as it finds it.
struct BenchListener {
  /// All ranks have met; `why_not_shared` is Communicator::link_reason().
  std::function<void(const std::string& link, const std::string& why_not_shared)> on_ready = {};
  std::function<void(const BenchRow& row)> on_row = {};
};

/// Starts the ranks, measures and returns when all have ended.
///
/// @return 0, or the exit code of the ranks that failed, who have said why on standard error.
/// Errors  UsageError, std::runtime_error.
[[nodiscard]] int run_bench(const BenchOptions& options, const BenchListener& listener);

/// What one such process does: it is one of the ranks and, as rank 0, tells the process at `place`.
[[nodiscard]] int run_bench_rank(const BenchOptions& options, const std::string& place);

}  // namespace paceline::apps
