// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A point in time after which a wait gives up. A public door takes a duration and makes one.

#include <algorithm>
#include <chrono>

namespace paceline {

using Clock = std::chrono::steady_clock;

/// `limit` after `from`, or the end of time if that comes first; a negative limit counts as zero.
/// Never overflows, whatever the unit of `limit`.
template <typename Rep, typename Period>
[[nodiscard]] Clock::time_point later(Clock::time_point from,
                                      std::chrono::duration<Rep, Period> limit) {
  using Seconds = std::chrono::duration<double>;
  if (limit <= limit.zero()) return from;
  const auto room = Clock::time_point::max() - from;
  if (Seconds(limit) >= Seconds(room)) return Clock::time_point::max();
  return from + std::chrono::duration_cast<Clock::duration>(limit);
}

class Deadline {
 public:
  /// `limit` from now; a negative limit has passed already, one beyond the clock's end never
  /// passes.
  template <typename Rep = Clock::rep, typename Period = Clock::period>
  [[nodiscard]] static Deadline after(std::chrono::duration<Rep, Period> limit) {
    return Deadline(later(Clock::now(), limit));
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
