// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/half_open.h"

#include <algorithm>
#include <array>
#include <utility>

#include "paceline/base/checked_cast.h"
#include "paceline/net/host.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "paceline/net/system_error.h"

namespace paceline::store {
namespace {

constexpr std::size_t kMaxTalkers = 16;
constexpr std::chrono::seconds kHandshakeLimit{5};
constexpr std::chrono::milliseconds kAnswerPause{20};
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

HalfOpen::HalfOpen(net::Fd socket, const Terms& terms, Deadline deadline)
    : socket_(std::move(socket)),
      address_(net::peer_address(socket_)),
      handshake_(terms),
      deadline_(deadline) {}

bool HalfOpen::write() {
  for (;;) {
    const auto more = handshake_.output();
    unsent_.insert(unsent_.end(), more.begin(), more.end());
    if (unsent_.empty()) return true;
    const auto result = net::try_write(socket_, unsent_);
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(result.bytes));
    if (result.closed) return false;
    if (result.would_block) return true;
  }
}

/// Reads no byte that belongs to what comes after the handshake.
bool HalfOpen::read() {
  std::array<std::byte, 128> buffer;
  while (const std::size_t wanted = std::min(handshake_.wanted(), buffer.size())) {
    const auto result = net::try_read(socket_, std::span(buffer).first(wanted));
    if (result.closed) return false;
    if (result.would_block) return true;
    heard_ = true;
    handshake_.take(std::span(buffer).first(result.bytes));
  }
  return true;
}

HalfOpen::Outcome HalfOpen::step() {
  bool alive = write();
  // A peer that refused has closed already, yet its last words can still be read.
  alive = read() && alive;
  alive = write() && alive;
  switch (handshake_.state()) {
    case Handshake::State::kRefused: return Outcome::kRefused;
    case Handshake::State::kAccepted:
      if (alive && unsent_.empty()) return Outcome::kAccepted;
      break;
    case Handshake::State::kTalking: break;
  }
  return alive && !deadline_.passed() ? Outcome::kPending : Outcome::kLost;
}

net::PollItem HalfOpen::interest() const {
  return {.fd = &socket_, .send = !unsent_.empty(), .recv = handshake_.wanted() != 0};
}

HalfOpen::Outcome complete(HalfOpen& half) {
  auto outcome = half.step();
  while (outcome == HalfOpen::Outcome::kPending) {
    net::PollItem item = half.interest();
    net::poll({&item, 1}, half.deadline());
    outcome = half.step();
  }
  return outcome;
}

std::optional<HalfOpen> shake_hands(const std::function<net::Fd()>& dial,
                                    const Terms& terms,
                                    Deadline deadline) {
  for (;;) {
    HalfOpen half(dial(), terms, Deadline::earlier(deadline, Deadline::after(kHandshakeLimit)));
    if (complete(half) != HalfOpen::Outcome::kLost) return half;
    if (deadline.passed()) return std::nullopt;
    net::poll({}, Deadline::earlier(deadline, Deadline::after(kAnswerPause)));
  }
}

Gate::Gate(const net::Fd& listener, const Terms& terms, const GateLimits& limits)
    : listener_(listener),
      local_(net::local_address(listener).starts_with('@')),
      terms_(terms),
      limits_(limits) {}

Deadline Gate::displaceable(const HalfOpen& one) const {
  if (one.heard()) return one.deadline();
  return Deadline::after(one.deadline().left() - (limits_.time - limits_.silence_in_a_crowd));
}

bool Gate::has_room() const {
  return half_open_.size() < limits_.at_once ||
         std::ranges::any_of(half_open_,
                             [this](const auto& one) { return displaceable(one).passed(); });
}

void Gate::want(std::vector<net::PollItem>& items) const {
  if (!paused_ && has_room()) items.push_back({.fd = &listener_, .recv = true});
  for (const auto& one : half_open_) items.push_back(one.interest());
}

Deadline Gate::next() const {
  Deadline first = paused_.value_or(Deadline::never());
  const bool crowded = !has_room();
  for (const auto& one : half_open_)
    first = Deadline::earlier(first, crowded ? displaceable(one) : one.deadline());
  return first;
}

void Gate::accept() {
  if (paused_ && !paused_->passed()) return;
  paused_.reset();
  try {
    while (has_room()) {
      net::Fd socket = net::accept_now(listener_);
      if (!socket) return;
      if (local_ && net::peer_credentials(socket).uid != net::user_id()) {
        ++strangers_;
        continue;
      }
      if (half_open_.size() == limits_.at_once) {
        half_open_.erase(std::ranges::find_if(
            half_open_, [this](const auto& one) { return displaceable(one).passed(); }));
        ++strangers_;
      }
      half_open_.emplace_back(std::move(socket), terms_, Deadline::after(limits_.time));
    }
  } catch (const net::SystemError&) {
    paused_ = Deadline::after(kAcceptPause);
  }
}

void Gate::finish(HalfOpen& one, HalfOpen::Outcome outcome) {
  const Handshake& handshake = one.handshake();
  if (outcome == HalfOpen::Outcome::kAccepted) {
    const int rank = checked_cast<int>(handshake.peer_rank());
    guests_.push_back({one.take_socket(), rank, handshake.session_key()});
    return;
  }
  const bool refused = outcome == HalfOpen::Outcome::kRefused;
  if (refused && handshake.authenticated() && std::in_range<int>(handshake.peer_rank())) {
    offenders_.push_back({static_cast<int>(handshake.peer_rank()), handshake.refusal()});
    return;
  }
  ++strangers_;
  if (!refused || handshake.refusal().code == RefusalCode::kNotOurs) return;
  if (talkers_.size() < kMaxTalkers) talkers_.push_back({one.address(), handshake.refusal()});
}

void Gate::step() {
  advance();  // first: nobody is displaced whose words wait to be read
  accept();
}

void Gate::advance() {
  for (auto one = half_open_.begin(); one != half_open_.end();) {
    const auto outcome = one->step();
    if (outcome == HalfOpen::Outcome::kPending) {
      ++one;
      continue;
    }
    finish(*one, outcome);
    one = half_open_.erase(one);
  }
}

std::vector<Guest> Gate::take_guests() { return std::exchange(guests_, {}); }
std::vector<Offender> Gate::take_offenders() { return std::exchange(offenders_, {}); }
std::vector<Stranger> Gate::take_strangers() { return std::exchange(talkers_, {}); }

}  // namespace paceline::store
