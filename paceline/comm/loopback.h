// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Both ends of a TCP connection in one process.

#include <array>

#include "paceline/base/deadline.h"
#include "paceline/net/fd.h"

namespace paceline {

/// Connects to `listener`, of this process and on 127.0.0.1, and takes that very connection. Others
/// that wait there come from strangers, since any process of the host may connect, and are dropped.
///
/// Errors  net::TimedOut, net::SystemError.
[[nodiscard]] std::array<net::Fd, 2> connect_to_self(const net::Fd& listener, Deadline deadline);

}  // namespace paceline
