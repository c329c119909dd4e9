// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/loopback.h"

#include <gtest/gtest.h>

#include <chrono>

#include "paceline/net/socket.h"

namespace paceline {
namespace {

TEST(Loopback, takes_its_own_connection_and_no_strangers) {
  const net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  const net::Fd stranger = net::connect_tcp("127.0.0.1", net::local_port(listener), deadline);
  for (int round = 0; round < 2; ++round) {
    const auto ends = connect_to_self(listener, deadline);
    EXPECT_EQ(net::peer_address(ends[1]), net::local_address(ends[0]));
    EXPECT_EQ(net::peer_address(ends[0]), net::local_address(ends[1]));
    EXPECT_NE(net::peer_address(ends[1]), net::local_address(stranger));
  }
}

}  // namespace
}  // namespace paceline
