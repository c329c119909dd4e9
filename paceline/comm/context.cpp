// SPDX-License-Identifier: Apache-2.0
// The caller's side of the engine: its threads, waiting, memory, and the end.
#include "paceline/comm/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "paceline/base/assert.h"
#include "paceline/base/error.h"
#include "paceline/net/host.h"

namespace paceline {
namespace {

// Once for each wait, on a core of its own: ranks of a training step come to a call up to a
// millisecond apart, and to be woken takes long on a virtual core.
constexpr Clock::duration kSpin = std::chrono::milliseconds(1);
// Of a core that ranks share, for each of them: meanwhile one works and the others yield to it.
constexpr Clock::duration kSpinShared = std::chrono::microseconds(100);

Region allocate_private(std::size_t bytes) {
  constexpr std::align_val_t kLine{64};
  auto* const data = static_cast<std::byte*>(::operator new(bytes, kLine, std::nothrow));
  if (data == nullptr) throw UsageError(fmt::format("there is no memory for {} bytes", bytes));
  return {{data, [](std::byte* p) { ::operator delete(p, kLine); }}, bytes};
}

}  // namespace

Context::Context(ContextOptions options)
    : rank_(options.rank),
      world_(options.world),
      store_rank_(options.store_rank),
      algorithm_(options.algorithm),
      fabric_(std::move(options.fabric)),
      link_reason_(std::move(options.link_reason)),
      windows_(fabric_ ? fabric_->windows() : nullptr),
      server_(std::move(options.server)),
      control_(std::move(options.control)),
      executor_(rank_,
                world_,
                fabric_.get(),
                {.communicator = 0, .generation = options.generation},
                options.segment_bytes,
                issued_) {
  PACELINE_ASSERT(world_ == 1 || (fabric_ && control_), "a world without links");
  if (world_ == 1) return;
  const int ranks_per_core = (world_ - 1) / net::usable_cores() + 1;
  crowded_ = ranks_per_core > 1;
  if (fabric_->worth_spinning()) spin_ = crowded_ ? kSpinShared * ranks_per_core : kSpin;
  try {
    progress_thread_ = std::jthread([this] { progress(); });
    listener_ = std::jthread([this] { listen(); });
  } catch (...) {
    const MutexLock lock(mutex_);
    stopped_ = true;
    work_.notify_all();
    throw;
  }
}

Context::~Context() { shut_down(); }

Work Context::start(const Call& call, Buffer in, Buffer out) {
  CallPtr state = issue(call, in, out);
  if (world_ == 1) {
    wait(*state);
  } else if (call.progress == Progress::kThread) {
    const MutexLock lock(mutex_);
    progress_wanted_ = true;
    if (driving_) {
      fabric_->wake();
    } else {
      work_.notify_one();
    }
  }
  return {shared_from_this(), std::move(state)};
}

void Context::require_not_forked() const {
  if (!forked()) return;
  throw UsageError(
      fmt::format("rank {}: this process was forked from the one that made the communicator, whose "
                  "links and memory are the parent's; use it there, or fork before init()",
                  rank_));
}

void Context::wait(CallState& call) {
  require_not_forked();
  if (!call.finished.load(std::memory_order_acquire)) {
    MutexLock lock(mutex_);
    while (!call.finished.load(std::memory_order_acquire)) {
      if (driving_) {
        ++waiting_;
        if (fabric_) fabric_->wake();
        changed_.wait(lock);
        --waiting_;
        continue;
      }
      const std::exception_ptr broken = drive_with_role(lock, &call, Patience::kWaits);
      if (waiting_ > 0 || stopped_) changed_.notify_all();
      if (broken) std::rethrow_exception(broken);
    }
    if (progress_needed()) work_.notify_one();  // the others' calls go on without us
  }
  if (call.error) std::rethrow_exception(call.error);
}

std::map<std::string, Traffic> Context::traffic() const {
  require_not_forked();
  const MutexLock lock(mutex_);
  return traffic_;
}

void Context::start_ledger(std::size_t capacity) {
  require_not_forked();
  const MutexLock lock(mutex_);
  ledger_.start(capacity);
  first_recorded_ = issued_.next();
}

Ledger Context::take_ledger() {
  require_not_forked();
  Ledger ledger = ledger_.take();
  std::sort(ledger.calls.begin(), ledger.calls.end(),
            [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  return ledger;
}

Region Context::allocate(std::size_t bytes) {
  if (windows_ == nullptr) return allocate_private(bytes);
  try {
    return {windows_->allocate(bytes), bytes};
  } catch (const link::OutOfWindowMemory& none) {
    throw UsageError(
        fmt::format("rank {}: no shared memory of {} bytes: {}", rank_, bytes, none.what()));
  }
}

std::uint64_t Context::offset_of(const Region& region) const {
  return static_cast<std::uint64_t>(region.data.get() - windows_->segment(rank_).data());
}

Region Context::shared_region(Region own, std::uint64_t offset, std::size_t bytes) {
  if (rank_ == 0) {
    const MutexLock lock(mutex_);
    shared_.push_back(own);
    return own;
  }
  const auto kept = windows_->keep(0);
  return {{windows_->segment(0).data() + offset, [kept](std::byte*) {}}, bytes};
}

bool Context::shares_memory() const noexcept { return fabric_ && fabric_->windows() != nullptr; }

void Context::abort(const std::string& reason) {
  if (forked()) return;  // the job is the parent's
  report({.code = CommErrc::kAborted,
          .rank = rank_,
          .peer = rank_,
          .from_sequence = 0,
          .text = fmt::format("rank {} aborted: {}", rank_, reason)});
}

void Context::abandon(const std::string& reason) {
  if (forked()) return;
  const store::Cause cause{.code = CommErrc::kAborted,
                           .rank = rank_,
                           .peer = rank_,
                           .from_sequence = 0,
                           .text = fmt::format("rank {}: {}", rank_, reason)};
  {
    const MutexLock lock(mutex_);
    if (stopped_) return;  // all calls have ended
    unsaid_ = cause;
  }
  poison(cause);
  if (control_) control_->interrupt();
}

void Context::shut_down() {
  if (forked()) {  // its threads are not here, and closing would end the parent's links
    // Kept for good: ~Context() would join them.
    static_cast<void>(new std::shared_ptr<Context>(weak_from_this().lock()));
    return;
  }
  {
    const MutexLock lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    work_.notify_all();
  }
  poison({.code = CommErrc::kAborted,
          .rank = rank_,
          .peer = rank_,
          .from_sequence = 0,
          .text = fmt::format("rank {}: the communicator was destroyed with this call in flight",
                              rank_)});
  // What peers may be about to read stays as it is.
  if (windows_ != nullptr) windows_->quarantine();
  if (control_) control_->interrupt();
  if (progress_thread_.joinable()) progress_thread_.join();
  if (listener_.joinable()) listener_.join();
  MutexLock lock(mutex_);
  while (driving_) changed_.wait(lock);
  driving_ = true;
  lock.unlock();
  obey_cause();
  if (fabric_) fabric_->close();
  control_.reset();
  lock.lock();
  driving_ = false;
  changed_.notify_all();
}

}  // namespace paceline
