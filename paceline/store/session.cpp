// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "paceline/store/verdict.h"

namespace paceline::store {
namespace {

/// While ranks connect to each other they know better than the hub what is missing.
constexpr std::chrono::milliseconds kLinkingGrace{500};

std::string quoted(const std::string& algorithm) {
  return algorithm.empty() ? "no override" : fmt::format("\"{}\"", algorithm);
}

std::string_view advice_on(const std::vector<int>& absent) {
  return absent.size() == 1 ? "; is it running, and was it given this address?"
                            : "; are they running, and were they given this address?";
}

}  // namespace

Session::Session(const SessionOptions& options, Time now)
    : options_(options),
      hub_(options.hub, now),
      guests_(static_cast<std::size_t>(options.hub.world)),
      patience_(later(now, options.connect_timeout)),
      shortest_(options.connect_timeout) {}

std::string Session::place_of(int rank) const {
  const auto& hello = guests_.at(index(rank)).hello;
  return hello ? fmt::format("{} ({})", hello->host, hello->address) : "nowhere";
}

void Session::send(int rank, Message message) { outgoing_.push_back({rank, std::move(message)}); }

void Session::collect() {
  for (auto& delivery : hub_.take_deliveries()) send(delivery.to, std::move(delivery.event));
}

void Session::admit(int rank, const Hello& hello, Time now) {
  hub_.joined(rank, now);
  guests_[index(rank)].hello = hello;
  ++open_;
  if (hub_.cause()) return send(rank, Event{.kind = Event::Kind::kCause, .cause = *hub_.cause()});
  if (later(now, hello.patience) < patience_) {
    patience_ = later(now, hello.patience);
    shortest_ = hello.connect_timeout;
  }
  check_algorithm(rank, hello);
  const bool all = std::ranges::all_of(guests_, [](const Guest& g) { return g.hello.has_value(); });
  if (all && !failed()) send_tables();
  collect();
}

void Session::check_algorithm(int rank, const Hello& hello) {
  for (int r = 0; r < options_.hub.world; ++r) {
    const auto& other = guests_[index(r)].hello;
    if (!other || other->algorithm == hello.algorithm) continue;
    return fail({.code = CommErrc::kRefused,
                 .rank = rank,
                 .peer = rank,
                 .from_sequence = 0,
                 .text = fmt::format("the algorithm differs: rank {} has {}, rank {} has {}", r,
                                     quoted(other->algorithm), rank, quoted(hello.algorithm))});
  }
}

void Session::send_tables() {
  phase_ = Phase::kLinking;
  std::vector<Table> tables;
  for (std::size_t first = 0; first < guests_.size(); first += kMaxTableEntries) {
    Table& table = tables.emplace_back();
    table.generation = options_.generation;
    table.first = static_cast<std::uint32_t>(first);
    for (std::size_t r = first; r < std::min(first + kMaxTableEntries, guests_.size()); ++r)
      table.entries.push_back({guests_[r].hello->host, guests_[r].hello->address});
  }
  for (int r = 0; r < options_.hub.world; ++r)
    for (const Table& table : tables) send(r, table);
}

void Session::set_ready(int rank) {
  guests_[index(rank)].ready = true;
  if (phase_ != Phase::kLinking || failed()) return;
  if (!std::ranges::all_of(guests_, &Guest::ready)) return;
  phase_ = Phase::kRunning;
  for (int r = 0; r < options_.hub.world; ++r) send(r, Start{});
}

void Session::take(int rank, const Message& message, Time now) {
  hub_.heard(rank, now);
  if (std::holds_alternative<Ready>(message)) set_ready(rank);
  if (const auto* standing = std::get_if<Standing>(&message)) hub_.published(rank, *standing, now);
  if (const auto* cause = std::get_if<Cause>(&message)) hub_.reported(rank, *cause, now);
  collect();
}

void Session::closed(int rank, Time now) {
  --open_;
  hub_.closed(rank, now);
  check_departures();
  collect();
}

void Session::note_exit(int rank, const std::string& how, Time now) {
  hub_.note_exit(rank, how, now);
  check_departures();
  collect();
}

void Session::fail(const Cause& cause) {
  hub_.settle(cause);
  collect();
}

void Session::check_departures() {
  if (phase_ == Phase::kRunning || failed()) return;
  for (int r = 0; r < options_.hub.world; ++r) {
    const auto& departure = hub_.departure(r);
    if (!departure) continue;
    return fail({.code = CommErrc::kConnectFailed,
                 .rank = -1,
                 .peer = r,
                 .from_sequence = 0,
                 .text = fmt::format("{} before all ranks had met", *departure)});
  }
}

std::vector<int> Session::missing() const {
  std::vector<int> result;
  for (int r = 0; r < options_.hub.world; ++r) {
    const Guest& guest = guests_[index(r)];
    const bool there = phase_ == Phase::kGathering ? guest.hello.has_value() : guest.ready;
    if (!there) result.push_back(r);
  }
  return result;
}

void Session::check_patience(Time now) {
  if (phase_ == Phase::kRunning || failed()) return;
  const bool gathering = phase_ == Phase::kGathering;
  if (now < (gathering ? patience_ : later(patience_, kLinkingGrace))) return;
  const auto absent = missing();
  const std::string what =
      gathering ? "never came to the store at " + options_.store : "did not connect to all others";
  std::string text =
      fmt::format("{} {} within {}", name_ranks(absent), what, name_duration(shortest_));
  if (!hint_.empty()) {
    text += "; " + hint_;
  } else if (gathering) {
    text += advice_on(absent);
  }
  fail({.code = CommErrc::kConnectFailed,
        .rank = -1,
        .peer = absent.empty() ? -1 : absent.front(),
        .from_sequence = 0,
        .text = std::move(text)});
}

void Session::advance(Time now) {
  hub_.advance(now);
  check_departures();
  check_patience(now);
  collect();
}

Session::Time Session::next() const {
  Time first = hub_.next();
  if (phase_ == Phase::kGathering && !failed()) first = std::min(first, patience_);
  if (phase_ == Phase::kLinking && !failed())
    first = std::min(first, later(patience_, kLinkingGrace));
  return first;
}

std::vector<Session::Outgoing> Session::take_outgoing() { return std::exchange(outgoing_, {}); }

}  // namespace paceline::store
