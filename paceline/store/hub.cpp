// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "paceline/store/verdict.h"

namespace paceline::store {
namespace {

constexpr std::size_t kStandingsKept = 64;  // per rank
constexpr std::size_t kMaxInquiries = 64;   // a rank cannot make the hub ask without end

}  // namespace

Hub::Hub(const HubOptions& options, Time now)
    : options_(options), members_(static_cast<std::size_t>(options.world)), advanced_(now) {}

Hub::Member* Hub::member(int rank) {
  const bool valid = rank >= 0 && rank < options_.world;
  return valid ? &members_[static_cast<std::size_t>(rank)] : nullptr;
}

bool Hub::connected(int rank) const {
  return members_.at(static_cast<std::size_t>(rank)).connected;
}

const std::optional<std::string>& Hub::departure(int rank) const {
  return members_.at(static_cast<std::size_t>(rank)).departure;
}

void Hub::joined(int rank, Time now) {
  Member* m = member(rank);
  if (m == nullptr) return;
  *m = Member{};
  m->connected = true;
  m->heard = now;
}

void Hub::heard(int rank, Time now) {
  if (Member* m = member(rank)) m->heard = now;
}

void Hub::store_standing(Member& member, const Standing& standing) {
  member.latest = standing;
  auto& known = member.standings;
  // A call's descriptor never changes; a rank may have forgotten it since.
  if (auto old = known.find(standing.sequence); old != known.end() && standing.hash == 0)
    old->second.issued = standing.issued;
  else
    known.insert_or_assign(standing.sequence, standing);
  if (known.size() > kStandingsKept) known.erase(known.begin());
}

void Hub::published(int rank, const Standing& standing, Time now) {
  Member* m = member(rank);
  if (m == nullptr || !m->connected) return;
  m->heard = now;
  const auto old = m->standings.find(standing.sequence);
  const bool knew = old != m->standings.end() && old->second.hash != 0;
  store_standing(*m, standing);
  if (const auto open = inquiries_.find(standing.sequence); open != inquiries_.end()) {
    open->second.waiting[static_cast<std::size_t>(rank)] = false;
    open->second.answered[static_cast<std::size_t>(rank)] = true;
    return conclude_if_answered(open);
  }
  // Only news starts an inquiry: answers that cross would start the next one for ever.
  const bool fails_anyway = cause_ && cause_->from_sequence <= standing.sequence;
  if (standing.hash != 0 && !knew && !fails_anyway)
    open_inquiry(standing.sequence, rank, std::nullopt, now);
}

void Hub::reported(int rank, Cause cause, Time now) {
  Member* m = member(rank);
  if (m == nullptr || !m->connected) return;
  m->heard = now;
  cause.rank = rank;  // the connection knows, the message may not
  if (cause.code != CommErrc::kTimeout) return settle(cause);
  if (cause_ && cause_->from_sequence <= cause.from_sequence) return;
  const auto open = inquiries_.find(cause.from_sequence);
  if (open != inquiries_.end() && open->second.timeout) return;
  if (open != inquiries_.end()) inquiries_.erase(open);
  const auto sequence = cause.from_sequence;
  open_inquiry(sequence, rank, std::move(cause), now);
}

void Hub::open_inquiry(std::uint64_t sequence,
                       int starter,
                       std::optional<Cause> timeout,
                       Time now) {
  if (inquiries_.size() == kMaxInquiries) return;
  Inquiry inquiry{.until = later(now, options_.answer_limit),
                  .starter = starter,
                  .timeout = std::move(timeout),
                  .waiting = std::vector<bool>(members_.size()),
                  .answered = std::vector<bool>(members_.size())};
  for (int r = 0; r < options_.world; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const auto known = members_[i].standings.find(sequence);
    const bool told = known != members_[i].standings.end() && known->second.hash != 0;
    // Who told already holds the call; asking once more could add nothing.
    inquiry.answered[i] = told;
    if (told || !members_[i].connected) continue;
    inquiry.waiting[i] = true;
    deliveries_.push_back({r, {.kind = Event::Kind::kAsk, .sequence = sequence}});
  }
  conclude_if_answered(inquiries_.insert_or_assign(sequence, std::move(inquiry)).first);
}

void Hub::conclude_if_answered(Inquiries::iterator inquiry) {
  const auto& waiting = inquiry->second.waiting;
  if (std::ranges::find(waiting, true) == waiting.end()) conclude(inquiry);
}

void Hub::conclude(Inquiries::iterator inquiry) {
  const auto [sequence, what] = std::move(*inquiry);
  inquiries_.erase(inquiry);
  if (const auto mismatch = difference(sequence, what.starter)) return settle(*mismatch);
  if (what.timeout) settle(name_absent(*what.timeout, what));
}

std::optional<Cause> Hub::difference(std::uint64_t sequence, int starter) const {
  std::vector<Variant> variants;
  for (int r = 0; r < options_.world; ++r) {
    const auto& known = members_[static_cast<std::size_t>(r)].standings;
    const auto found = known.find(sequence);
    if (found == known.end() || found->second.hash == 0) continue;
    const auto& [_, standing] = *found;
    auto same = std::ranges::find(variants, standing.hash, &Variant::hash);
    if (same == variants.end()) {
      variants.push_back({standing.hash, standing.text, {}});
      same = variants.end() - 1;
    }
    same->ranks.push_back(r);
  }
  if (variants.size() < 2) return std::nullopt;
  return Cause{.code = CommErrc::kMismatch,
               .rank = starter,
               .peer = -1,
               .from_sequence = sequence,
               .text = mismatch_text(sequence, variants)};
}

std::string Hub::whereabouts(int rank, std::uint64_t sequence, bool answered) const {
  const Member& m = members_[static_cast<std::size_t>(rank)];
  if (m.departure) return *m.departure;
  if (!answered) return fmt::format("rank {} does not answer", rank);
  if (m.latest && m.latest->sequence == sequence && m.latest->issued <= sequence)
    return progress_text(rank, m.latest->issued, m.latest->text);
  return {};
}

Cause Hub::name_absent(const Cause& timeout, const Inquiry& inquiry) const {
  Cause result = timeout;
  int blamed = -1;
  for (int r = 0; r < options_.world; ++r) {
    if (r == inquiry.starter) continue;
    const bool answered = inquiry.answered[static_cast<std::size_t>(r)];
    const std::string where = whereabouts(r, timeout.from_sequence, answered);
    if (where.empty()) continue;
    if (blamed < 0) blamed = r;
    result.text += "; " + where;
  }
  if (blamed >= 0) result.peer = blamed;
  return result;
}

void Hub::settle(const Cause& cause) {
  // A later cause matters only to earlier calls, which the first one has left running.
  if (cause_ && cause_->from_sequence <= cause.from_sequence) return;
  cause_ = cause;
  inquiries_.erase(inquiries_.lower_bound(cause.from_sequence), inquiries_.end());
  deliver_to_others(-1, {.kind = Event::Kind::kCause, .cause = cause});
}

void Hub::deliver_to_others(int rank, const Event& event) {
  for (int r = 0; r < options_.world; ++r)
    if (r != rank && members_[static_cast<std::size_t>(r)].connected)
      deliveries_.push_back({r, event});
}

void Hub::closed(int rank, Time now) {
  Member* m = member(rank);
  if (m == nullptr || !m->connected) return;
  m->connected = false;
  if (m->exit_words.empty()) {
    m->leaves = later(now, options_.departure_grace);
    return;
  }
  depart(rank);
  advance_inquiries(now);
}

void Hub::note_exit(int rank, const std::string& how, Time now) {
  Member* m = member(rank);
  if (m == nullptr || m->departure) return;
  m->exit_words = how;
  if (m->connected) {
    m->leaves = later(now, options_.departure_grace);  // its last words may still be on their way
    return;
  }
  depart(rank);
  advance_inquiries(now);
}

void Hub::depart(int rank) {
  Member& m = members_[static_cast<std::size_t>(rank)];
  m.leaves.reset();
  m.connected = false;
  for (auto& [_, inquiry] : inquiries_) inquiry.waiting[static_cast<std::size_t>(rank)] = false;
  m.departure = m.exit_words.empty() ? fmt::format("rank {} has closed its connection", rank)
                                     : fmt::format("rank {} {}", rank, m.exit_words);
  deliver_to_others(rank, {.kind = Event::Kind::kDeparted, .rank = rank, .text = *m.departure});
}

void Hub::advance(Time now) {
  advance_departures(now);
  advance_inquiries(now);
  advance_silence(now);
  advanced_ = now;
}

void Hub::advance_departures(Time now) {
  for (int r = 0; r < options_.world; ++r) {
    const auto& leaves = members_[static_cast<std::size_t>(r)].leaves;
    if (leaves && *leaves <= now) depart(r);
  }
}

void Hub::advance_inquiries(Time now) {
  std::vector<std::uint64_t> due;
  for (const auto& [sequence, inquiry] : inquiries_) {
    const bool answered = std::ranges::find(inquiry.waiting, true) == inquiry.waiting.end();
    if (answered || inquiry.until <= now) due.push_back(sequence);
  }
  for (const auto sequence : due)
    if (const auto i = inquiries_.find(sequence); i != inquiries_.end()) conclude(i);
}

void Hub::advance_silence(Time now) {
  if (!options_.silence_limit) return;
  const auto limit = *options_.silence_limit;
  // Time in which the hub itself stood still says nothing about the ranks.
  const bool stood_still = now - advanced_ > limit / 4;
  std::vector<int> silent;
  for (int r = 0; r < options_.world; ++r) {
    Member& m = members_[static_cast<std::size_t>(r)];
    if (!m.connected) continue;
    if (stood_still) m.heard = now;
    if (m.silent || now - m.heard < limit) continue;
    m.silent = true;
    silent.push_back(r);
  }
  if (silent.empty()) return;
  settle({.code = CommErrc::kTimeout,
          .rank = -1,
          .peer = silent.front(),
          .from_sequence = 0,
          .text = silence_text(silent, limit)});
}

Hub::Time Hub::next() const {
  Time first = Time::max();
  for (const auto& [_, inquiry] : inquiries_) first = std::min(first, inquiry.until);
  bool anybody = false;
  for (const auto& m : members_) {
    if (m.leaves) first = std::min(first, *m.leaves);
    anybody = anybody || m.connected;
  }
  if (options_.silence_limit && anybody)
    first = std::min(first, advanced_ + *options_.silence_limit / 8);
  return first;
}

std::vector<Hub::Delivery> Hub::take_deliveries() { return std::exchange(deliveries_, {}); }

}  // namespace paceline::store
