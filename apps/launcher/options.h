// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What `paceline run` was asked to do.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace paceline::apps {

struct RunOptions {
  int ranks = 1;      ///< on this host
  int nodes = 1;      ///< hosts
  int node_rank = 0;  ///< which host this is
  std::string master_addr = {};
  std::optional<int> master_port = {};
  std::string secret_file = {};
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds grace = std::chrono::seconds(10);
  std::optional<std::string> log_dir = {};
  std::vector<std::string> command = {};  ///< program and arguments
};

/// Errors  UsageError that names the flag and its value.
void check(const RunOptions& options);

}  // namespace paceline::apps
