// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// `paceline bench step`: what a training step of several ranks costs over that of ranks alone.

#include "apps/command.h"

namespace paceline::apps {

/// Adds `step` to `bench`. Parsing it stores what to do in `action`.
void add_bench_step_command(CLI::App& bench, Action& action);

}  // namespace paceline::apps
