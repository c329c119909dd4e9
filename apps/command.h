// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How a subcommand joins the `paceline` command.

#include <functional>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace paceline::apps {

/// What the chosen subcommand does; its result is the exit code. UsageError ends in exit code 2,
/// any other exception in 1.
using Action = std::function<int()>;

}  // namespace paceline::apps
