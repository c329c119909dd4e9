// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// `paceline run`: the launcher's command line. What it does: launcher/.

#include <string>
#include <vector>

#include "apps/command.h"

namespace paceline::apps {

/// Adds `run` to `root`. Parsing it stores what to do in `action`; `program` is what stands after
/// `--` on the command line.
void add_run_command(CLI::App& root, Action& action, std::vector<std::string> program);

}  // namespace paceline::apps
