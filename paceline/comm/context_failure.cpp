// SPDX-License-Identifier: Apache-2.0
// How the engine fails: the first cause wins, reaches every rank, and closes the links after it.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/comm/context.h"

namespace paceline {
namespace {

// How long a rank that sees a closed link waits for the cause before it blames its neighbour.
constexpr auto kCauseGrace = std::chrono::milliseconds(1000);
// How long after its departure a rank's bytes may still arrive: a lost packet is sent again by
// then.
constexpr auto kLastBytesGrace = std::chrono::milliseconds(500);
// How long the hub may take to ask all ranks where they stand.
constexpr auto kHubGrace = std::chrono::milliseconds(3000);
// As a cause's from_sequence: the calls that have not been issued yet.
constexpr std::uint64_t kNextCall = std::numeric_limits<std::uint64_t>::max();

}  // namespace

void Context::listen() {
  for (;;) {
    try {
      report_unsaid();
      {
        const MutexLock lock(mutex_);
        if (stopped_) return;
      }
      if (const auto event = control_->next(Deadline::after(std::chrono::seconds(1)))) {
        handle(*event);
      }
    } catch (const std::exception& error) {
      return poison(
          {.code = CommErrc::kAborted,
           .rank = rank_,
           .peer = rank_,
           .from_sequence = 0,
           .text = fmt::format("rank {}: the control channel failed: {}", rank_, error.what())});
    }
  }
}

void Context::report_unsaid() {
  std::optional<store::Cause> cause;
  {
    const MutexLock lock(mutex_);
    cause = std::exchange(unsaid_, std::nullopt);
  }
  if (cause) control_->report(*cause);
}

void Context::handle(const store::Event& event) {
  switch (event.kind) {
    case store::Event::Kind::kCause: {
      const bool hub_lost = event.cause.rank < 0 && event.cause.code == CommErrc::kPeerClosed;
      return hub_lost ? on_hub_lost(event.cause) : poison(event.cause);
    }
    case store::Event::Kind::kAsk: control_->publish(issued_.standing(event.sequence)); return;
    case store::Event::Kind::kDeparted: return on_departed(event.rank, event.text);
  }
}

// Without its hub a job can still end the calls that it has begun, so only new ones fail.
void Context::on_hub_lost(store::Cause cause) {
  cause.from_sequence = kNextCall;
  if (store_rank_ && *store_rank_ != rank_) {
    cause.peer = *store_rank_;
    cause.text = fmt::format("rank {}: lost rank {}, and with it the store that it serves", rank_,
                             *store_rank_);
  }
  poison(std::move(cause));
  const MutexLock lock(mutex_);
  hub_lost_ = true;
  changed_.notify_all();
}

void Context::on_departed(int peer, const std::string& how) {
  if (peer < 0 || peer >= world_ || peer == rank_) return;
  {
    const MutexLock lock(mutex_);
    departed_.emplace(peer, Departure{.how = how});
    somebody_departed_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  fabric_->wake();  // a driver that sleeps has to know how long it still may
}

void Context::report(const store::Cause& cause) {
  if (control_) control_->report(cause);
  poison(cause);
}

void Context::poison(store::Cause cause) {
  bool close_now = false;
  {
    const MutexLock lock(mutex_);
    if (cause.from_sequence == kNextCall) cause.from_sequence = issued_.next();
    if (cause_ && cause_->from_sequence <= cause.from_sequence) return;  // the first cause is kept
    cause_ = cause;
    cause_pending_.store(true, std::memory_order_release);
    close_now = nothing_owed() && !driving_;
    progress_wanted_ = true;
    changed_.notify_all();
    work_.notify_one();
  }
  if (!fabric_) return;
  if (close_now) {
    fabric_->close();
  } else {
    fabric_->wake();
  }
}

void Context::obey_cause() {
  if (!cause_pending_.load(std::memory_order_acquire)) return;
  store::Cause cause;
  {
    const MutexLock lock(mutex_);
    cause_pending_.store(false, std::memory_order_relaxed);
    if (!cause_) return;
    cause = *cause_;
  }
  take_intake();
  retire(executor_.take_done());
  std::vector<CallPtr> failed = executor_.take_from(cause.from_sequence);
  if (!failed.empty()) {
    const MutexLock lock(mutex_);
    told_ = true;
  }
  for (const CallPtr& call : failed) {
    call->error = std::make_exception_ptr(CommError(cause.code, rank_, cause.peer, cause.text));
  }
  retire(failed);
  const MutexLock lock(mutex_);
  if (nothing_owed() && executor_.in_flight().empty()) {
    if (fabric_) fabric_->close();
  } else {
    cause_pending_.store(true, std::memory_order_release);  // close once the earlier calls are done
  }
}

// Whether no call from before the cause is in flight or still to be issued.
bool Context::nothing_owed() const {
  return cause_ && open_.empty() && cause_->from_sequence <= issued_.next();
}

std::string Context::name_of_call(const CallState& call) const {
  return fmt::format("rank {}: call #{} ({})", rank_, call.sequence, text_of(call.descriptor));
}

void Context::fail_all(CommErrc code, int peer, const std::string& text) {
  const CallState& call = *executor_.in_flight().front();
  const std::string who = peer == rank_ ? "failed" : fmt::format("failed at rank {}", peer);
  report({.code = code,
          .rank = rank_,
          .peer = peer,
          .from_sequence = call.sequence,
          .text = fmt::format("{} {}: {}", name_of_call(call), who, text)});
  obey_cause();
}

bool Context::await_cause(std::chrono::milliseconds limit, std::uint64_t covering, int peer) {
  const Deadline deadline = Deadline::after(limit);
  MutexLock lock(mutex_);
  const auto known = [&]() PACELINE_REQUIRES(mutex_) {
    return blames_a_rank() && cause_->from_sequence <= covering;
  };
  while (!known() && !hub_lost_ && !stopped_ && !departed_.contains(peer)) {
    if (changed_.wait_until(lock, deadline.when()) == std::cv_status::timeout) break;
  }
  return known();
}

// A cause that is known already also ends the calls in flight before it: a link they need is gone.
void Context::adopt_cause() {
  const std::uint64_t first = executor_.in_flight().front()->sequence;
  {
    const MutexLock lock(mutex_);
    cause_->from_sequence = std::min(cause_->from_sequence, first);
    cause_pending_.store(true, std::memory_order_release);
  }
  obey_cause();
}

// The loss of the hub alone blames nobody, and must not hide who else is lost.
bool Context::blames_a_rank() const { return cause_ && (cause_->rank >= 0 || cause_->peer >= 0); }

std::string Context::why_gone(int peer, const std::string& how) const {
  const MutexLock lock(mutex_);
  const auto found = departed_.find(peer);
  std::string why = found == departed_.end() ? how : found->second.how;
  if (hub_lost_ && cause_ && !blames_a_rank()) why += "; " + cause_->text;
  return why;
}

// A rank that has left sends no more, even where somebody else still holds its sockets open. Its
// last bytes may take a moment. @return when to look again.
Clock::time_point Context::look_at_departures(Clock::time_point now) {
  auto next = Clock::time_point::max();
  if (!somebody_departed_.load(std::memory_order_acquire)) return next;
  std::optional<int> lost;
  {
    const MutexLock lock(mutex_);
    for (auto& [peer, departure] : departed_) {
      if (!executor_.waits_for(peer)) continue;
      const std::uint64_t before = std::exchange(departure.bytes, executor_.bytes_from(peer));
      if (!departure.quiet_since || before != departure.bytes) departure.quiet_since = now;
      const auto due = *departure.quiet_since + kLastBytesGrace;
      if (due <= now) lost = peer;
      next = std::min(next, due);
    }
  }
  if (!lost) return next;
  on_peer_lost(*lost, "it has left");
  return now;
}

void Context::on_peer_lost(int peer, const std::string& how) {
  if (await_cause(kCauseGrace, kNextCall, peer)) return adopt_cause();
  const CallState& call = *executor_.in_flight().front();
  report(
      {.code = CommErrc::kPeerClosed,
       .rank = rank_,
       .peer = peer,
       .from_sequence = call.sequence,
       .text = fmt::format("{} lost rank {}: {}", name_of_call(call), peer, why_gone(peer, how))});
  obey_cause();
}

void Context::on_descriptor_differs(int peer, std::uint64_t sequence) {
  const store::Standing mine = issued_.standing(sequence);
  control_->publish(mine);
  if (await_cause(kHubGrace, kNextCall)) return adopt_cause();
  const std::uint64_t first = executor_.in_flight().front()->sequence;
  report({.code = CommErrc::kMismatch,
          .rank = rank_,
          .peer = peer,
          .from_sequence = std::min(sequence, first),
          .text = fmt::format("call #{} differs between ranks: here, on rank {}, it is {}; rank {} "
                              "means another call",
                              sequence, rank_, mine.text, peer)});
  obey_cause();
}

void Context::on_timeout(const CallState& call) {
  const auto seconds = std::chrono::duration<double>(call.timeout).count();
  const store::Cause cause{
      .code = CommErrc::kTimeout,
      .rank = rank_,
      .peer = -1,
      .from_sequence = call.sequence,
      .text = fmt::format("{} stood still for {:g} s", name_of_call(call), seconds)};
  control_->report(cause);
  (void)await_cause(kHubGrace, call.sequence);
  poison(cause);  // kept only if the hub had no answer
  obey_cause();
}

}  // namespace paceline
