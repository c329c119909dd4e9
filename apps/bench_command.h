// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// `paceline bench`: how fast collectives are, beside what limits them.

#include "apps/command.h"

namespace paceline::apps {

/// Adds `bench` to `root`. Parsing it stores what to do in `action`.
void add_bench_command(CLI::App& root, Action& action);

}  // namespace paceline::apps
