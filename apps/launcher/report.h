// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The words in which a job's end is told.

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "paceline/net/child.h"

namespace paceline::apps {

/// "exited with code 7", "was killed by SIGSEGV (invalid memory access)".
[[nodiscard]] std::string describe(const net::ExitStatus& status);

/// How a job on this host has ended.
struct Outcome {
  int first_rank = 0;  ///< of this host
  int world_size = 1;
  std::vector<net::ExitStatus> ends = {};         ///< of each local rank
  std::optional<std::size_t> first_failure = {};  ///< local rank
  std::optional<int> interrupted_by = {};         ///< signal that we passed on
  std::deque<std::string> last_lines = {};        ///< of the first failure
  std::vector<std::string> losses = {};           ///< why output of the ranks did not arrive
};

/// The first failing rank's code or 128 + signal. If every rank succeeded, 0, or 1 if output of
/// theirs was lost.
[[nodiscard]] int exit_code(const Outcome& outcome);

/// Lines for standard error, the headline last; empty after a success.
[[nodiscard]] std::vector<std::string> report(const Outcome& outcome);

}  // namespace paceline::apps
