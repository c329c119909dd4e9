// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/options.h"

#include <fmt/format.h>

#include <string_view>

#include "paceline/base/error.h"
#include "paceline/base/types.h"

namespace paceline::apps {
namespace {

constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 7);

void check_range(std::string_view flag, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    throw UsageError(fmt::format("{} {}: must lie in {}..{}", flag, value, low, high));
}

void check_seconds(std::string_view flag, std::chrono::milliseconds value) {
  if (value.count() <= 0 || value > kLongest)
    throw UsageError(
        fmt::format("{} must be a number of seconds above 0, and at most a week", flag));
}

void check_hosts(const RunOptions& options) {
  if (options.nodes == 1) {
    if (!options.master_addr.empty())
      throw UsageError("--master-addr is only for several hosts: it needs --nnodes");
    return;
  }
  if (options.master_addr.empty())
    throw UsageError("--nnodes needs --master-addr: the name or address of host 0");
  if (!options.master_port)
    throw UsageError("--nnodes needs --master-port: the same free port of host 0 on all hosts");
}

void check_command(const std::vector<std::string>& command) {
  constexpr std::string_view kAdvice = "write it after --, as in `paceline run -n 2 -- ./train`";
  if (command.empty()) throw UsageError(fmt::format("no program to run: {}", kAdvice));
  if (command.front().empty())
    throw UsageError(fmt::format("the program's name is empty: {}", kAdvice));
}

}  // namespace

void check(const RunOptions& options) {
  check_range("-n", options.ranks, 1, kMaxWorldSize);
  check_range("--nnodes", options.nodes, 1, kMaxWorldSize);
  check_range("--node-rank", options.node_rank, 0, options.nodes - 1);
  if (options.master_port) check_range("--master-port", *options.master_port, 1, 65535);
  check_seconds("--connect-timeout", options.connect_timeout);
  check_seconds("--grace", options.grace);
  check_hosts(options);
  if (options.log_dir && options.log_dir->empty())
    throw UsageError("--log-dir is empty: it must name a folder");
  check_command(options.command);
}

}  // namespace paceline::apps
