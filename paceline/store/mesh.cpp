// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "paceline/base/checked_cast.h"
#include "paceline/base/error.h"
#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"

namespace paceline::store {
namespace {

constexpr std::chrono::milliseconds kLongestPause{500};

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

[[noreturn]] void throw_no_address(const std::string& text) {
  throw BadMessage(fmt::format("\"{}\" is no address of a rank", text));
}

HostPort split(const std::string& address) {
  const auto colon = address.rfind(':');
  HostPort result{.host = address.substr(0, colon)};
  if (colon != std::string::npos && colon != 0) {
    const char* end = address.data() + address.size();
    const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, result.port);
    if (error == std::errc{} && rest == end && result.port != 0) return result;
  }
  throw_no_address(address);
}

}  // namespace

Mesh::Mesh(const net::Fd& listener, const MeshOptions& options, Deadline deadline)
    : options_(options),
      deadline_(deadline),
      gate_(listener, terms_for(Side::kAcceptor, kAnyRank)),
      sockets_(options.addresses.size()) {
  for (int peer = 0; peer < options_.rank; ++peer)
    dials_.push_back({.peer = peer, .due = Deadline::after({})});
}

Terms Mesh::terms_for(Side side, std::uint32_t peer) const {
  return {.side = side,
          .purpose = Purpose::kData,
          .rank = checked_cast<std::uint32_t>(options_.rank),
          .peer = peer,
          .world = checked_cast<std::uint32_t>(options_.addresses.size()),
          .generation = options_.generation,
          .secret = options_.secret};
}

void Mesh::want(std::vector<net::PollItem>& items) const {
  gate_.want(items);
  for (const Dial& dial : dials_) {
    if (dial.connecting) items.push_back({.fd = &dial.connecting, .send = true});
    if (dial.half) items.push_back(dial.half->interest());
  }
}

Deadline Mesh::next() const {
  Deadline first = gate_.next();
  for (const Dial& dial : dials_)
    first = Deadline::earlier(first, dial.half ? dial.half->deadline() : dial.due);
  return first;
}

void Mesh::retry_later(Dial& dial) {
  dial.connecting.reset();
  dial.half.reset();
  dial.due = Deadline::after(dial.pause);
  dial.pause = std::min(dial.pause * 2, kLongestPause);
}

void Mesh::start(Dial& dial) {
  const std::string& address = options_.addresses[static_cast<std::size_t>(dial.peer)];
  const auto [host, port] = split(address);
  try {
    dial.connecting = net::start_connect_tcp(host, port);
    dial.due = Deadline::earlier(deadline_, Deadline::after(options_.dial_limit));
  } catch (const net::UnknownHost&) {
    throw_no_address(address);
  } catch (const net::SystemError&) {
    retry_later(dial);  // until the deadline; missing() then names the peer
  }
}

void Mesh::finish_connect(Dial& dial) {
  const auto outcome = net::connect_outcome(dial.connecting);
  if (outcome == 0)
    dial.half.emplace(std::move(dial.connecting),
                      terms_for(Side::kInitiator, static_cast<std::uint32_t>(dial.peer)),
                      deadline_);
  else if (outcome || dial.due.passed())
    retry_later(dial);
}

bool Mesh::step(Dial& dial) {
  if (!dial.half && !dial.connecting && dial.due.passed()) start(dial);
  if (dial.connecting) finish_connect(dial);
  if (!dial.half) return false;
  switch (dial.half->step()) {
    case HalfOpen::Outcome::kPending: return false;
    case HalfOpen::Outcome::kLost: retry_later(dial); return false;
    case HalfOpen::Outcome::kRefused:
      throw CommError(CommErrc::kRefused, options_.rank, dial.peer,
                      fmt::format("rank {} at {} does not connect with rank {}: {}", dial.peer,
                                  options_.addresses[static_cast<std::size_t>(dial.peer)],
                                  options_.rank, to_text(dial.half->handshake().refusal())));
    case HalfOpen::Outcome::kAccepted: break;
  }
  sockets_[static_cast<std::size_t>(dial.peer)] = dial.half->take_socket();
  return true;
}

void Mesh::step() {
  for (auto dial = dials_.begin(); dial != dials_.end();)
    dial = step(*dial) ? dials_.erase(dial) : std::next(dial);
  gate_.step();
  // A rank that dials again has lost its first connection: the newest counts.
  for (Guest& guest : gate_.take_guests())
    if (guest.rank > options_.rank)
      sockets_[static_cast<std::size_t>(guest.rank)] = std::move(guest.socket);
}

std::vector<int> Mesh::missing() const {
  std::vector<int> result;
  for (int peer = 0; peer < checked_cast<int>(sockets_.size()); ++peer)
    if (peer != options_.rank && !sockets_[static_cast<std::size_t>(peer)]) result.push_back(peer);
  return result;
}

}  // namespace paceline::store
