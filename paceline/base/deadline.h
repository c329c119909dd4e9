// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A point in time after which a wait gives up. A public door takes a duration and makes one.

#include <algorithm>
#include <chrono>

namespace paceline {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  /// `limit` from now; a negative limit has passed already.
  [[nodiscard]] static Deadline after(std::chrono::nanoseconds limit) {
    const auto now = Clock::now();
    const auto room = Clock::time_point::max() - now;
    return Deadline(limit >= room ? Clock::time_point::max()
                                  : now + std::chrono::duration_cast<Clock::duration>(limit));
  }
  [[nodiscard]] static Deadline never() { return Deadline(Clock::time_point::max()); }
  [[nodiscard]] static Deadline earlier(Deadline a, Deadline b) {
    return Deadline(std::min(a.when_, b.when_));
  }
  [[nodiscard]] bool passed() const { return Clock::now() >= when_; }
  [[nodiscard]] bool is_never() const { return when_ == Clock::time_point::max(); }
  [[nodiscard]] Clock::time_point when() const { return when_; }
  /// Time left, never negative.
  [[nodiscard]] Clock::duration left() const {
    return std::max(when_ - Clock::now(), Clock::duration::zero());
  }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace paceline
