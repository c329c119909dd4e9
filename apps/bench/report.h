// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What a bench has found, for people and for programs.

#include <string>
#include <vector>

#include "apps/bench/measure.h"
#include "apps/bench/options.h"

namespace paceline::apps {

struct BenchReport {
  std::string link = {};         ///< what joined the ranks
  std::string link_reason = {};  ///< why they share no memory, if they could have tried
  double ready_ms = 0;           ///< from the start to the first barrier of all ranks
  std::vector<BenchRow> rows = {};
};

/// A row as one line of JSON, and back: what rank 0 tells the process that started it.
[[nodiscard]] std::string text_of(const BenchRow& row);
[[nodiscard]] BenchRow bench_row_from(const std::string& text);

/// Bytes per second of the buffer in one call, in GB; 0 where nothing moves.
[[nodiscard]] double algbw_GBps(const BenchRow& row);
/// The same, times what a call makes each rank move at the least: comparable between numbers of
/// ranks and with the speed of a link.
[[nodiscard]] double busbw_GBps(const BenchRow& row, const BenchOptions& options);

/// The lines above the rows, and each row's.
[[nodiscard]] std::string heading_of(const BenchOptions& options, const BenchReport& report);
[[nodiscard]] std::string line_of(const BenchRow& row, const BenchOptions& options);

[[nodiscard]] std::string json_of(const BenchReport& report, const BenchOptions& options);

}  // namespace paceline::apps
