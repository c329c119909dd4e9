// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/loopback.h"

#include <string>
#include <utility>

#include "paceline/net/socket.h"

namespace paceline {

std::array<net::Fd, 2> connect_to_self(const net::Fd& listener, Deadline deadline) {
  net::Fd mine = net::connect_tcp("127.0.0.1", net::local_port(listener), deadline);
  const std::string expected = net::local_address(mine);
  for (;;) {
    net::Fd other = net::accept(listener, deadline);
    if (net::peer_address(other) == expected) return {std::move(mine), std::move(other)};
  }
}

}  // namespace paceline
