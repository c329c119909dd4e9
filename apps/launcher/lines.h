// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Cuts a stream of bytes into lines, and knows the line that is still being written.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace paceline::apps {

/// A line ends with "\n" or "\r\n". A lone "\r" takes what was written since the last line back to
/// its start, as a progress bar does: it stays visible as live() until something replaces it.
class Lines {
 public:
  /// Longer lines are cut, so that a program without line ends cannot fill our memory.
  static constexpr std::size_t kLongest = 64 << 10;

  using Sink = std::function<void(std::string_view line)>;
  explicit Lines(Sink sink) : sink_(std::move(sink)) {}

  void feed(std::string_view bytes);
  /// The stream has ended: what is left becomes a line.
  void finish();
  /// What a terminal would show of the line that has not ended.
  [[nodiscard]] std::string_view live() const noexcept {
    return pending_.empty() ? std::string_view(replaced_) : std::string_view(pending_);
  }

 private:
  void put(char c);
  void end_line();

  Sink sink_;
  std::string pending_;
  std::string replaced_;  ///< what a carriage return has taken back, still on the screen
  bool carriage_ = false;
};

}  // namespace paceline::apps
