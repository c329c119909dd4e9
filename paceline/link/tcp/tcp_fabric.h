// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Links over connected stream sockets: non-blocking reads and writes, one poll() to wait on.

#include <memory>
#include <vector>

#include "paceline/link/link.h"
#include "paceline/net/fd.h"

namespace paceline::link {

/// Takes connected, authenticated sockets: sockets[p] leads to rank p; the own entry is empty.
///
/// Errors  UsageError if an entry other than the own one is empty.
[[nodiscard]] std::unique_ptr<Fabric> make_tcp_fabric(int rank, std::vector<net::Fd> sockets);

}  // namespace paceline::link
