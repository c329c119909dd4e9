// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "paceline/base/mutex.h"
#include "paceline/store/control.h"
#include "paceline/store/hub.h"

namespace paceline::store {
namespace {

/// A hub behind a mutex, and each rank's events. Whoever waits keeps the hub's clock going.
class MemoryHub {
 public:
  explicit MemoryHub(int world)
      // A thread cannot stop alone, so silence means nothing here; nor has it a launcher with
      // words.
      : hub_({.world = world, .departure_grace = {}, .silence_limit = std::nullopt}, Clock::now()),
        boxes_(static_cast<std::size_t>(world)) {
    for (int r = 0; r < world; ++r) hub_.joined(r, Clock::now());
  }

  template <typename F>
  void tell(F&& what) PACELINE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    what(hub_, Clock::now());
    hand_out();
  }

  void interrupt(int rank) PACELINE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    box(rank).interrupted = true;
    changed_.notify_all();
  }

  std::optional<Event> next(int rank, Deadline deadline) PACELINE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    for (;;) {
      hub_.advance(Clock::now());
      hand_out();
      Box& mine = box(rank);
      if (!mine.events.empty()) {
        Event event = std::move(mine.events.front());
        mine.events.pop_front();
        return event;
      }
      if (mine.interrupted || deadline.passed()) {
        mine.interrupted = false;
        return std::nullopt;
      }
      sleep(lock, deadline);
    }
  }

 private:
  struct Box {
    std::deque<Event> events;
    bool interrupted = false;
  };

  Box& box(int rank) PACELINE_REQUIRES(mutex_) { return boxes_[static_cast<std::size_t>(rank)]; }

  void hand_out() PACELINE_REQUIRES(mutex_) {
    auto deliveries = hub_.take_deliveries();
    for (auto& delivery : deliveries) box(delivery.to).events.push_back(std::move(delivery.event));
    if (!deliveries.empty()) changed_.notify_all();
    // Sleepers have to learn of a new timer too.
    if (hub_.next() < earliest_) changed_.notify_all();
    earliest_ = hub_.next();
  }

  void sleep(MutexLock& lock, Deadline deadline) PACELINE_REQUIRES(mutex_) {
    const auto until = std::min(deadline.when(), hub_.next());
    if (until == Clock::time_point::max())
      changed_.wait(lock);
    else
      changed_.wait_until(lock, until);
  }

  Mutex mutex_;
  ConditionVariable changed_;
  Hub hub_ PACELINE_GUARDED_BY(mutex_);
  std::vector<Box> boxes_ PACELINE_GUARDED_BY(mutex_);
  Clock::time_point earliest_ PACELINE_GUARDED_BY(mutex_) = Clock::time_point::max();
};

class MemoryControl final : public Control {
 public:
  MemoryControl(std::shared_ptr<MemoryHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~MemoryControl() override {
    try {
      hub_->tell([this](Hub& hub, Clock::time_point now) { hub.closed(rank_, now); });
    } catch (...) {  // only memory can be short here; the others then wait for their deadline
    }
  }

  void publish(const Standing& standing) noexcept override {
    try {
      hub_->tell([&](Hub& hub, Clock::time_point now) { hub.published(rank_, standing, now); });
    } catch (...) {  // as above
    }
  }
  void report(const Cause& cause) noexcept override {
    try {
      hub_->tell([&](Hub& hub, Clock::time_point now) { hub.reported(rank_, cause, now); });
    } catch (...) {  // as above
    }
  }
  std::optional<Event> next(Deadline deadline) override { return hub_->next(rank_, deadline); }
  void interrupt() noexcept override { hub_->interrupt(rank_); }

 private:
  const std::shared_ptr<MemoryHub> hub_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Control>> make_memory_controls(int world) {
  if (world < 1) throw UsageError(fmt::format("a world of {} ranks", world));
  const auto hub = std::make_shared<MemoryHub>(world);
  std::vector<std::unique_ptr<Control>> controls;
  controls.reserve(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r) controls.push_back(std::make_unique<MemoryControl>(hub, r));
  return controls;
}

}  // namespace paceline::store
