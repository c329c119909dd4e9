// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// For tests: an address at which nobody answers, as of a host that is cut off.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "paceline/net/socket.h"

namespace paceline::net::test {

/// The queue of its listener is full, so the kernel ignores whoever comes.
class BlackHole {
 public:
  BlackHole() : listener_(listen_tcp("127.0.0.1", 0)) {
    EXPECT_EQ(::listen(listener_.raw(), 0), 0);
    queued_ = connect_tcp("127.0.0.1", port(), limit());
  }
  [[nodiscard]] std::uint16_t port() const { return local_port(listener_); }
  [[nodiscard]] std::string address() const { return local_address(listener_); }
  /// The host is back. @return its listener, whose queue has room.
  [[nodiscard]] Fd open() {
    EXPECT_EQ(::listen(listener_.raw(), 16), 0);
    (void)accept(listener_, limit());
    return std::move(listener_);
  }

 private:
  static Deadline limit() { return Deadline::after(std::chrono::seconds(20)); }

  Fd listener_;
  Fd queued_;
};

}  // namespace paceline::net::test
