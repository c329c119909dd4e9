// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/reception.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "paceline/store/verdict.h"

namespace paceline::store {
namespace {

constexpr std::size_t kMostNotices = 8;

}  // namespace

Session& Reception::open(Time now) {
  if (!sessions_.empty()) noticed_.clear();
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

std::vector<int> Reception::awaited() const {
  std::vector<int> everybody(static_cast<std::size_t>(options_.world));
  std::iota(everybody.begin(), everybody.end(), 0);
  if (sessions_.empty()) return everybody;
  const Session& session = sessions_.back();
  return session.running() || session.failed() ? std::vector<int>() : session.missing();
}

void Reception::note_stranger(const Stranger& stranger) {
  const std::string reason = to_text(stranger.refusal);
  hint_ = fmt::format("a connection from {} was refused: {}", stranger.address, reason);
  if (!sessions_.empty()) sessions_.back().set_hint(hint_);
  // Its port differs each time that it tries.
  notice(stranger.address.substr(0, stranger.address.rfind(':')), reason);
}

void Reception::notice(const std::string& host, const std::string& reason) {
  const auto absent = awaited();
  if (absent.empty() || noticed_.size() == kMostNotices) return;
  if (!noticed_.insert(host + ' ' + reason).second) return;
  notices_.push_back(fmt::format("still waiting for {}: {}", name_ranks(absent), hint_));
  if (noticed_.size() == kMostNotices)
    notices_.emplace_back("connections that are refused from now on are only counted");
}

std::vector<std::string> Reception::take_notices() { return std::exchange(notices_, {}); }

void Reception::advance(Time now) {
  for (auto& session : sessions_) session.advance(now);
}

void Reception::forget_finished() {
  if (sessions_.empty()) return;
  const auto newest = std::prev(sessions_.end());
  for (auto s = sessions_.begin(); s != newest;)
    s = s->any_open() ? std::next(s) : sessions_.erase(s);
}

Reception::Time Reception::next() const {
  Time first = Time::max();
  for (const auto& session : sessions_) first = std::min(first, session.next());
  return first;
}

}  // namespace paceline::store
