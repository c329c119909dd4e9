// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Times one exercise on all ranks, beside its yardsticks.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "apps/bench/exercise.h"
#include "paceline/comm/communicator.h"

namespace paceline::apps {

/// What the exercise cannot beat: the same work without waiting, and a plain copy.
struct Yardsticks {
  std::function<void()> roofline = {};  ///< empty where ranks share no memory
  std::function<void()> copy = {};      ///< empty where nothing is moved
};

/// Microseconds of one stretch of a row: medians taken in turns.
struct BenchSegment {
  double us = 0;
  std::optional<double> roofline_us = {};
  std::optional<double> memcpy_us = {};
};

struct BenchRow {
  std::uint64_t bytes = 0;
  double min_us = 0;
  double median_us = 0;
  double p99_us = 0;
  std::optional<double> roofline_us = {};
  std::optional<double> memcpy_us = {};
  bool verified = false;
  std::int64_t repetitions = 0;     ///< times that were taken
  std::int64_t calls_per_time = 1;  ///< above 1 where looking at the clock would take too long
  std::vector<BenchSegment> segments = {};
  std::optional<double> idle_share = {};  ///< of a core, by a rank that waits; barrier only
};

/// The value that a share of the others lies below; `sorted` holds at least one.
[[nodiscard]] double quantile(const std::vector<double>& sorted, double share);

/// Collective. Each time is the slowest rank's. Takes about `seconds`, more where a call is slow.
/// A wrong result is told on standard error, by the rank that has it.
[[nodiscard]] BenchRow measure(Communicator& comm,
                               const Exercise& exercise,
                               const Yardsticks& yardsticks,
                               double seconds);

/// The share of a core that a rank uses while it waits in a barrier for rank 0, the largest of all.
/// For ranks that are processes.
[[nodiscard]] double idle_share(Communicator& comm);

}  // namespace paceline::apps
