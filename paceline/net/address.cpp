// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/address.h"

#include <fmt/format.h>
#include <netdb.h>

#include <cstddef>
#include <cstring>
#include <memory>

#include "paceline/base/error.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

[[noreturn]] void throw_unresolved(const std::string& host, int reason) {
  if (reason != EAI_SYSTEM) throw UnknownHost(host, ::gai_strerror(reason));
  throw_errno(fmt::format("looking up host '{}'", host), "check the name, or give an address");
}

std::vector<Address> look_up(const std::string& host, std::uint16_t port, int flags) {
  if (host.empty()) throw UsageError("a host name or address is needed, got an empty text");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int reason =
      ::getaddrinfo(without_brackets(host).c_str(), std::to_string(port).c_str(), &hints, &found);
  if (reason != 0) throw_unresolved(host, reason);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    addresses.push_back(address);
  }
  return addresses;
}

}  // namespace

bool Address::operator==(const Address& other) const {
  return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
}

std::vector<Address> resolve(const std::string& host, std::uint16_t port) {
  return look_up(host, port, 0);
}

Address numeric_address(const std::string& text, std::uint16_t port) {
  return look_up(text, port, AI_NUMERICHOST).at(0);
}

Address abstract_address(std::string_view name) {
  Address address;
  sockaddr_un& local = address.storage.local;
  if (name.empty() || name.size() >= sizeof local.sun_path)
    throw UsageError(fmt::format("a local socket's name needs 1 to {} bytes, '{}' has {}",
                                 sizeof local.sun_path - 1, name, name.size()));
  local.sun_family = AF_UNIX;
  std::memcpy(&local.sun_path[1], name.data(), name.size());  // sun_path[0] == 0: abstract
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string to_text(const Address& address) {
  if (address.family() == AF_UNIX) {
    constexpr std::size_t kPath = offsetof(sockaddr_un, sun_path);
    if (address.size <= kPath + 1) return "an unnamed socket";
    const char* path = &address.storage.local.sun_path[0];
    return path[0] == '\0' ? '@' + std::string(path + 1, address.size - kPath - 1)
                           : std::string(path);
  }
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (::getnameinfo(address.get(), address.size, &host[0], sizeof host, &port[0], sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  if (address.family() == AF_INET6) return fmt::format("[{}]:{}", &host[0], &port[0]);
  return fmt::format("{}:{}", &host[0], &port[0]);
}

std::string to_text(const std::string& host, std::uint16_t port) {
  const std::string plain = without_brackets(host);
  if (plain.find(':') != std::string::npos) return fmt::format("[{}]:{}", plain, port);
  return fmt::format("{}:{}", plain, port);
}

}  // namespace paceline::net
