// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Links and a control channel that do what a test says: ends of a world whose other ranks are not
/// there.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "paceline/comm/frame.h"
#include "paceline/link/link.h"
#include "paceline/store/control.h"

namespace paceline::test {

/// Takes everything, and gives what `give` gives. A closed one says so.
class FakeLink final : public link::Link {
 public:
  using Give = std::function<std::size_t(std::span<std::byte>)>;
  explicit FakeLink(Give give) : give_(std::move(give)) {}
  std::size_t try_send(std::span<const std::span<const std::byte>> parts) override {
    std::size_t bytes = 0;
    for (const auto& part : parts) bytes += part.size();
    return bytes;
  }
  std::size_t try_recv(std::span<std::byte> into) override { return give_ ? give_(into) : 0; }
  void close() noexcept override {}

 private:
  Give give_;
};

/// Links of rank 0 in a world of `peers` + 1; peer p's bytes come from give[p].
class FakeFabric final : public link::Fabric {
 public:
  FakeFabric(int peers, std::map<int, FakeLink::Give> give) {
    for (int p = 1; p <= peers; ++p) links_.push_back(std::make_unique<FakeLink>(give[p]));
  }
  link::Link& to(int peer) override { return *links_.at(static_cast<std::size_t>(peer) - 1); }
  void wait(std::span<const link::Interest>, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.when(), [&] { return woken_; });
    woken_ = false;
  }
  void wake() noexcept override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  void close() noexcept override { wake(); }
  [[nodiscard]] bool worth_spinning() const noexcept override { return false; }
  [[nodiscard]] const char* name() const noexcept override { return "fake"; }

 private:
  std::vector<std::unique_ptr<FakeLink>> links_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
};

/// Gives the events that the test says, and each cause that the rank reports.
class FakeControl final : public store::Control {
 public:
  void say(store::Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  void publish(const store::Standing&) noexcept override {}
  /// As the hub does where nobody was faster.
  void report(const store::Cause& cause) noexcept override {
    say({.kind = store::Event::Kind::kCause, .cause = cause});
  }
  /// Whether all that was said so far has been taken in.
  [[nodiscard]] bool heard() {
    const std::lock_guard lock(mutex_);
    return events_.empty() && waiting_;
  }
  std::optional<store::Event> next(Deadline deadline) override {
    std::unique_lock lock(mutex_);
    waiting_ = true;
    changed_.wait_until(lock, deadline.when(), [&] { return interrupted_ || !events_.empty(); });
    waiting_ = interrupted_ = false;
    if (events_.empty()) return std::nullopt;
    store::Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void interrupt() noexcept override {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<store::Event> events_;
  bool interrupted_ = false;
  bool waiting_ = false;
};

}  // namespace paceline::test
