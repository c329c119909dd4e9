// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How the launchers of several hosts agree on the ranks of a job before any rank starts: each says
/// how many it will start, host 0 says who gets which numbers.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "paceline/net/fd.h"
#include "paceline/store/join.h"

namespace paceline::store {

/// A person is told of hosts that are missing after so long, and again.
inline constexpr std::chrono::seconds kPatience{3};

struct HostOptions {
  int node = 0;            ///< which host this is
  int nodes = 1;           ///< hosts of the job
  int ranks = 1;           ///< that this host will start
  std::string host;        ///< host 0, as the others reach it
  std::uint16_t port = 0;  ///< where it listens
  Secret secret;
  std::string problem = {};  ///< why this host cannot start its ranks; all hosts hear of it
  std::chrono::milliseconds connect_timeout{std::chrono::seconds(60)};
  /// Gets what a person should know while hosts are missing, each text once.
  std::function<void(const std::string&)> tell = [](const std::string&) {};
};

/// A host's place in the job: its ranks are first_rank, first_rank + 1, …
struct Layout {
  int world = 1;
  int first_rank = 0;
  bool operator==(const Layout&) const = default;
};

/// Host 0's part: waits at `listener` until each other host has reported.
///
/// Order   Ranks are numbered by host, then by their place on it.
/// Errors  CommError kConnectFailed if a host has not come before connect_timeout (its number is in
///         the text); kRefused, on all hosts that have come, if one of them has a problem, the
///         number of hosts differs, two say the same --node-rank, or the ranks are more than
///         kMaxWorldSize. A host whose secret differs is a stranger: it is told so, this one goes
///         on waiting.
[[nodiscard]] Layout receive_hosts(const net::Fd& listener, const HostOptions& options);

/// Every other host's part: reports to host 0, which may start later, and awaits its word.
///
/// Errors  CommError kConnectFailed if host 0 cannot be reached before connect_timeout, or leaves;
///         kRefused if the secret differs, or with host 0's reason.
[[nodiscard]] Layout report_to_host_0(const HostOptions& options);

}  // namespace paceline::store
