// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// `paceline compare`: starts the program that lies beside this one and is linked to LibTorch.

#include "apps/command.h"

namespace paceline::apps {

/// Adds `compare` to `root`; what stands behind it is for the other program to read. Running it
/// becomes that program.
void add_compare_command(CLI::App& root, Action& action);

}  // namespace paceline::apps
