// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Signals as something to read from, and their names.

#include <span>
#include <string>
#include <string_view>

#include <csignal>
#include <optional>

#include "paceline/net/fd.h"

namespace paceline::net {

/// Blocks signals for the calling thread and those it starts, and hands them out one by one
/// instead. The destructor restores the mask. Children made by spawn() start with no signal
/// blocked.
///
/// Threads  Make it before other threads start, else those still take the signals. One reader.
class SignalFd {
 public:
  /// Errors  SystemError.
  explicit SignalFd(std::span<const int> signals);
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;
  ~SignalFd();

  /// Readable while a signal waits.
  [[nodiscard]] const Fd& fd() const noexcept { return fd_; }
  /// The next signal, if one waits. Equal signals that wait together count as one.
  [[nodiscard]] std::optional<int> next();

 private:
  sigset_t previous_{};
  Fd fd_;
};

/// Whether this process ignores `signal`, as `nohup` arranges it.
[[nodiscard]] bool is_ignored(int signal);

/// "SIGSEGV", or "signal 77".
[[nodiscard]] std::string signal_name(int signal);
/// "invalid memory access"; empty for a signal that says nothing in particular.
[[nodiscard]] std::string_view signal_meaning(int signal) noexcept;

}  // namespace paceline::net
