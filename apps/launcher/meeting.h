// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where the ranks meet: address, secret and, on host 0, the store's server.

#include <cstdint>
#include <memory>
#include <string>

#include "apps/launcher/options.h"
#include "paceline/net/fd.h"
#include "paceline/store/join.h"

namespace paceline::apps {

struct Meeting {
  std::string address;
  std::uint16_t port = 0;
  net::Fd secret;                         ///< to inherit; empty if authentication is off
  std::unique_ptr<store::Server> server;  ///< on host 0 only
};

/// Binds, makes or reads the secret, and serves. The port is never bound twice, so nobody races
/// for it.
///
/// Errors  UsageError that names the flag, the variable or the file.
[[nodiscard]] Meeting open_meeting(const RunOptions& options);

}  // namespace paceline::apps
