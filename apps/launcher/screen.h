// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Our own standard output and error: whole lines from many ranks, and one live line at the bottom
/// if a person watches.

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/net/terminal.h"

namespace paceline::apps {

/// Threads  One at a time.
class Screen {
 public:
  Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen();

  /// Writes "[rank] text" as one whole line.
  void line(net::StandardStream stream, int rank, std::string_view text);
  /// Sets what `rank` shows at the bottom; empty for nothing. The lowest such rank is seen. Does
  /// nothing unless standard output is a terminal.
  void live(int rank, std::string_view text);
  /// Writes "paceline: text" to standard error.
  void note(std::string_view text);
  /// Whether a reader has gone away for good.
  [[nodiscard]] bool closed() const noexcept;
  /// "cannot write to standard output: No space left on device": what did not reach its reader.
  [[nodiscard]] std::vector<std::string> losses() const;
  /// Width of the terminal, 0 if there is none.
  [[nodiscard]] std::size_t columns() const noexcept { return columns_; }

 private:
  void write(net::StandardStream stream, const std::string& text);
  void put(net::StandardStream stream, std::string_view text);
  [[nodiscard]] std::string live_text() const;

  const std::size_t columns_;
  std::map<int, std::string> live_;  ///< rank -> text, never empty
  bool shown_ = false;               ///< a live line is on the screen
  std::array<int, 3> errors_{};      ///< by descriptor: errno of the first write that failed
};

}  // namespace paceline::apps
