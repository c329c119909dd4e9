// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the operating system refused, as exceptions. Rooms above turn them into UsageError or
/// CommError.

#include <stdexcept>
#include <string>
#include <string_view>

namespace paceline::net {

/// A system call failed. `what()` names the call's purpose, its object, the reason and, where there
/// is one, what to do.
class SystemError : public std::runtime_error {
 public:
  /// `code` is an errno value; `doing` reads like "listening on 127.0.0.1:80".
  SystemError(int code, std::string_view doing, std::string_view advice = {});
  [[nodiscard]] int code() const noexcept { return code_; }

 protected:
  struct Whole {};
  SystemError(Whole, int code, const std::string& text) : std::runtime_error(text), code_(code) {}

 private:
  int code_;
};

/// A deadline passed first. code() is ETIMEDOUT.
class TimedOut : public SystemError {
 public:
  explicit TimedOut(std::string_view doing, std::string_view advice = {});
  /// After many tries; what() is that of the last one.
  explicit TimedOut(const SystemError& last);
};

/// A host name has no address, or not yet: name servers learn of hosts at their own pace. code()
/// is EHOSTUNREACH; what() has the resolver's reason.
class UnknownHost : public SystemError {
 public:
  UnknownHost(std::string_view host, std::string_view reason);
};

/// The peer closed the stream before all bytes had come. code() is 0.
class EndOfStream : public SystemError {
 public:
  explicit EndOfStream(std::string_view doing);
};

/// Throws SystemError with the current errno.
[[noreturn]] void throw_errno(std::string_view doing, std::string_view advice = {});

/// "Connection refused", thread-safe.
[[nodiscard]] std::string errno_text(int code);

}  // namespace paceline::net
