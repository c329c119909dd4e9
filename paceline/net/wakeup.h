// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A bell that another thread rings to end a poll().

#include "paceline/net/fd.h"

namespace paceline::net {

/// Threads  Any.
class Wakeup {
 public:
  /// Errors  SystemError.
  Wakeup();
  /// Makes fd() readable until the next drain().
  void wake() noexcept;
  /// Forgets earlier wakes. @return whether there was one.
  bool drain() noexcept;
  [[nodiscard]] const Fd& fd() const noexcept { return fd_; }

 private:
  Fd fd_;
};

}  // namespace paceline::net
