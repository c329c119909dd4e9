// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Ranks that are processes under our own launcher, and what rank 0 tells meanwhile.

#include <functional>
#include <string>
#include <vector>

#include "apps/compare/connection.h"

namespace paceline::apps {

struct RankProcesses {
  int count = 1;
  std::string program;
  std::vector<std::string> arguments;  ///< a last one is added: the place that rank 0 visits
  std::vector<std::string> environment;
};

/// Starts the ranks, passes on each text of rank 0 and returns when all have ended.
///
/// @return 0, or the exit code of the ranks that failed, who have said why on standard error.
/// Errors  std::runtime_error if they do not end.
[[nodiscard]] int run_ranks(const RankProcesses& ranks,
                            const std::function<void(const Connection::Text&)>& hear);

}  // namespace paceline::apps
