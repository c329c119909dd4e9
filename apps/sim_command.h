// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// `paceline sim`: the ring and DataParallel's relay, executed in memory and counted.

#include <cstdint>
#include <string>

#include "apps/command.h"

namespace paceline::apps {

struct SimOptions {
  int ranks = 4;
  std::int64_t elements = 8;
  bool json = false;
  bool steps = false;
};

struct SimOutput {
  std::string text;
  int exit_code = 0;  ///< 1 if a count differs from its formula or the result from the plain mean
};

/// Errors  UsageError if there is no such ring, or json and steps are both asked for.
[[nodiscard]] SimOutput run_sim(const SimOptions& options);

/// Adds `sim` to `root`. Parsing it stores what to do in `action`.
void add_sim_command(CLI::App& root, Action& action);

}  // namespace paceline::apps
