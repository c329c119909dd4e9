// SPDX-License-Identifier: Apache-2.0
// The driver's side of the engine: advances the executor, sleeps, notices stalls.
#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/comm/context.h"
#include "paceline/comm/link_error.h"

namespace paceline {
namespace {

// A call that stands still this long makes its rank say where it stands.
constexpr Clock::duration kStall = std::chrono::milliseconds(200);

// Turns in which something moved, between two looks at the clock. A turn takes from 100 ns to some
// milliseconds.
constexpr unsigned kTurnsPerLook = 64;

// Turns between two looks at links that no call needs: they tell of peers that have gone.
constexpr unsigned kTurnsPerLinks = 64;

// Turns in which nothing moved, between two looks at the clock of a driver that spins.
constexpr unsigned kTurnsPerClock = 8;

void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Context::progress() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!stopped_ && !progress_needed()) work_.wait(lock);
    if (stopped_) return;
    (void)drive_with_role(lock, nullptr, Patience::kWaits);
    if (open_.empty()) progress_wanted_ = false;
    changed_.notify_all();
  }
}

void Context::advance() {
  if (forked()) return;
  MutexLock lock(mutex_);
  if (driving_ || open_.empty()) return;
  (void)drive_with_role(lock, nullptr, Patience::kNone);
  if (waiting_ > 0 || stopped_) changed_.notify_all();
  if (progress_needed()) work_.notify_one();  // it may have been woken while the role was ours
}

// Gives the role back whatever happens.
std::exception_ptr Context::drive_with_role(MutexLock& lock,
                                            const CallState* target,
                                            Patience patience) {
  const bool waits = patience == Patience::kWaits;
  std::exception_ptr broken;
  driving_ = true;
  lock.unlock();
  try {
    if (waits) excuse_absence();
    drive(target, patience);
  } catch (...) {
    broken = std::current_exception();
  }
  if (waits && !executor_.in_flight().empty()) left_ = Clock::now();
  lock.lock();
  driving_ = false;
  return broken;
}

bool Context::progress_needed() const {
  return progress_wanted_ && !driving_ && waiting_ == 0 && !open_.empty();
}

// While no driver waited no call could be expected to move: that time is nobody's stall.
void Context::excuse_absence() {
  if (executor_.in_flight().empty()) return;
  const auto now = Clock::now();
  for (const CallPtr& call : executor_.in_flight()) {
    call->still_since = std::min(now, call->still_since + (now - left_));
  }
}

void Context::drive(const CallState* target, Patience patience) {
  for (bool ended = false; !ended;) {
    try {
      ended = drive_once(target, patience);
    } catch (const std::exception&) {
      on_failure(std::current_exception());
    }
  }
}

// One turn. @return whether the driver's work is done.
bool Context::drive_once(const CallState* target, Patience patience) {
  take_intake();
  obey_cause();
  const Executor::Reach reach = next_reach();
  const bool moved = executor_.advance(reach);
  if (moved) idle_ = false;
  retire(executor_.take_done());
  if (executor_.in_flight().empty()) {
    obey_cause();
    return true;
  }
  if (target == nullptr ? waiting_ > 0 : target->finished.load(std::memory_order_relaxed)) {
    return true;
  }
  if (!moved) {
    if (patience == Patience::kNone) return true;
    rest(reach);
  } else if (++busy_turns_ % kTurnsPerLook == 0) {  // one call may stand still while others move
    (void)look_at_stalls(Clock::now());
  }
  return false;
}

Executor::Reach Context::next_reach() {
  const bool told = std::exchange(links_next_, false);
  const bool looks = told || executor_.needs_links() || ++turns_ % kTurnsPerLinks == 0;
  return looks ? Executor::Reach::kAll : Executor::Reach::kWindows;
}

void Context::take_intake() {
  if (intake_pending_.load(std::memory_order_acquire)) {
    const MutexLock lock(mutex_);
    taken_.insert(taken_.end(), intake_.begin(), intake_.end());
    intake_.clear();
    intake_pending_.store(false, std::memory_order_relaxed);
  }
  while (!taken_.empty()) {
    const CallPtr call = std::move(taken_.front());
    taken_.erase(taken_.begin());
    executor_.add(call);
  }
}

void Context::on_failure(std::exception_ptr error) {
  retire(executor_.take_done());
  if (executor_.in_flight().empty()) return;  // what failed was not needed any more
  try {
    std::rethrow_exception(std::move(error));
  } catch (const PeerLost& lost) {
    on_peer_lost(lost.peer, lost.what());
  } catch (const DescriptorDiffers& differs) {
    on_descriptor_differs(differs.peer, differs.sequence);
  } catch (const ProtocolBroken& broken) {
    fail_all(CommErrc::kMismatch, broken.peer, broken.what());
  } catch (const std::exception& other) {
    fail_all(CommErrc::kAborted, rank_, other.what());
  }
}

void Context::retire(const std::vector<CallPtr>& calls) {
  if (calls.empty()) return;
  for (const CallPtr& call : calls) call->keeps.reset();  // whose end may be anybody's code
  const MutexLock lock(mutex_);
  for (const CallPtr& call : calls) {
    Traffic& total = traffic_[call->descriptor.label];
    total += call->total_traffic();
    ++total.calls;
    if (call->record && call->sequence >= first_recorded_) ledger_.add(call->end_record());
    std::erase(open_, call);
    call->finished.store(true, std::memory_order_release);
  }
  if (waiting_ > 0) changed_.notify_all();
}

// After a turn of that reach, in which nothing moved.
void Context::rest(Executor::Reach reach) {
  // Looking at the clock takes as long as looking at what others have posted.
  if (spin_ > Clock::duration::zero() && !crowded_ && ++idle_turns_ % kTurnsPerClock != 0) {
    pause_cpu();
    return;
  }
  const auto now = Clock::now();
  if (!std::exchange(idle_, true)) idle_since_ = now;
  if (now - idle_since_ < spin_) {
    crowded_ ? std::this_thread::yield() : pause_cpu();
    return;
  }
  if (reach != Executor::Reach::kAll) {  // nobody sleeps on what the links would have told
    links_next_ = true;
    idle_turns_ = kTurnsPerClock - 1;  // and may sleep then
    return;
  }
  const Deadline deadline = look_at_stalls(now);
  if (!executor_.in_flight().empty()) fabric_->wait(executor_.interests(), deadline);
}

Deadline Context::look_at_stalls(Clock::time_point now) {
  auto next = Clock::time_point::max();
  const CallList calls = executor_.in_flight();  // a copy: a timeout takes calls out of flight
  for (const CallPtr& call : calls) {
    if (std::exchange(call->moved, false)) {
      call->still_since = now;
      call->published = false;
    }
    const auto still = now - call->still_since;
    const auto due = later(call->still_since, call->timeout);
    if (due <= now) {
      on_timeout(*call);
      return Deadline::after(Clock::duration::zero());
    }
    if (!call->published && still >= kStall && call == calls.front()) {
      call->published = true;
      control_->publish(issued_.standing(call->sequence));
    }
    next = std::min(next, due);
    if (!call->published) next = std::min(next, call->still_since + kStall);
  }
  return Deadline::after(std::min(next, look_at_departures(now)) - now);
}

}  // namespace paceline
