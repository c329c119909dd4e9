// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/reception.h"

#include <fmt/format.h>

#include <algorithm>

namespace paceline::store {

Session& Reception::open(Time now) {
  SessionOptions options;
  options.hub.world = options_.world;
  options.generation = random_nonzero();
  options.store = store_;
  options.connect_timeout = options_.connect_timeout;
  Session& session = sessions_.emplace_back(options, now);
  session.set_hint(hint_);
  for (const auto& [rank, how] : exits_) session.note_exit(rank, how, now);
  return session;
}

Session* Reception::welcome(int rank, const Hello& hello, Time now, std::string& refusal) {
  exits_.erase(rank);
  if (sessions_.empty()) return &open(now);
  Session& session = sessions_.back();
  if (!session.has(rank)) return &session;
  if (!session.connected(rank) || session.failed()) return &open(now);
  refusal = fmt::format("rank {} is taken twice: by {} and by {} ({})", rank,
                        session.place_of(rank), hello.host, hello.address);
  if (!session.running())
    session.fail({.code = CommErrc::kRefused,
                  .rank = rank,
                  .peer = rank,
                  .from_sequence = 0,
                  .text = refusal});
  return nullptr;
}

void Reception::turn_away(const Offender& offender, Time now) {
  if (!sessions_.empty() && (sessions_.back().running() || sessions_.back().failed())) return;
  Session& session = sessions_.empty() ? open(now) : sessions_.back();
  session.fail({.code = CommErrc::kRefused,
                .rank = -1,
                .peer = offender.rank,
                .from_sequence = 0,
                .text = fmt::format("the store refused rank {}: {}", offender.rank,
                                    to_text(offender.refusal))});
}

void Reception::note_exit(int rank, const std::string& how, Time now) {
  exits_[rank] = how;
  for (auto& session : sessions_) session.note_exit(rank, how, now);
}

void Reception::set_hint(const std::string& hint) {
  hint_ = hint;
  if (!sessions_.empty()) sessions_.back().set_hint(hint);
}

void Reception::advance(Time now) {
  for (auto& session : sessions_) session.advance(now);
}

void Reception::forget_finished() {
  if (sessions_.empty()) return;
  const auto newest = std::prev(sessions_.end());
  for (auto s = sessions_.begin(); s != newest;)
    s = s->any_connected() ? std::next(s) : sessions_.erase(s);
}

Reception::Time Reception::next() const {
  Time first = Time::max();
  for (const auto& session : sessions_) first = std::min(first, session.next());
  return first;
}

}  // namespace paceline::store
