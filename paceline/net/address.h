// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Socket addresses: names to candidates, and back to text. Private to net/.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::net {

/// One address of any family that net/ uses.
struct Address {
  union Storage {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
    sockaddr_un local;
    sockaddr_storage room;
  } storage = {.room = {}};
  socklen_t size = sizeof(sockaddr_storage);

  [[nodiscard]] const sockaddr* get() const { return &storage.any; }
  [[nodiscard]] sockaddr* get() { return &storage.any; }
  [[nodiscard]] int family() const { return storage.any.sa_family; }
  bool operator==(const Address& other) const;
};

/// All TCP addresses of `host` ("::1", "[::1]", "fe80::1%eth0", "node7"), in the resolver's order.
///
/// Errors  UnknownHost if the name has none, SystemError.
/// Cost    May ask a name server. No deadline of ours bounds that, resolv.conf(5) does: by default
///         two tries of 5 s per server.
[[nodiscard]] std::vector<Address> resolve(const std::string& host, std::uint16_t port);

/// The TCP address that `text` is ("10.0.0.5", "::1", "[::1]"), no name: asks nobody.
///
/// Errors  UnknownHost if it is none, SystemError.
[[nodiscard]] Address numeric_address(const std::string& text, std::uint16_t port);

/// The abstract address `name` (no file appears).
///
/// Errors  UsageError if the name is empty or too long.
[[nodiscard]] Address abstract_address(std::string_view name);

/// "127.0.0.1:80", "[::1]:80", "@name", or "an unnamed socket".
[[nodiscard]] std::string to_text(const Address& address);

/// "node7:80", "[::1]:80": what the user asked for, in one piece.
[[nodiscard]] std::string to_text(const std::string& host, std::uint16_t port);

}  // namespace paceline::net
