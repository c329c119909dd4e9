// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where hosts and ranks meet: address, secret, this host's ranks and, on host 0, the store's
/// server.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "apps/launcher/options.h"
#include "paceline/net/fd.h"
#include "paceline/store/hosts.h"
#include "paceline/store/join.h"

namespace paceline::apps {

struct Meeting {
  std::string address;
  std::uint16_t port = 0;
  store::Layout layout;                   ///< this host's ranks among all
  store::Secret secret;                   ///< empty: authentication is off
  net::Fd secret_fd;                      ///< the same, to inherit
  net::Fd listener;                       ///< on host 0, until serve()
  std::unique_ptr<store::Server> server;  ///< on host 0, from serve() on
};

/// Binds, makes or reads the secret, and waits until all hosts have come. The port is never bound
/// twice, so nobody races for it. `tell` gets what a person should know while hosts are missing.
/// `problem` says why this host cannot start its ranks: with several hosts, all hear of it.
///
/// Errors  UsageError that names the flag, the variable or the file; CommError if hosts do not come
///         or do not fit together.
/// Threads Starts none: signals, and processes to fork, still have one owner.
[[nodiscard]] Meeting open_meeting(const RunOptions& options,
                                   const std::function<void(const std::string&)>& tell,
                                   const std::string& problem = {});

/// Host 0: lets the ranks in, on a thread of the server's own. The other hosts: nothing.
void serve(Meeting& meeting, const RunOptions& options);

}  // namespace paceline::apps
