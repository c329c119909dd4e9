// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where a rank writes down the phases of its steps.

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

#include "paceline/base/ledger_book.h"

namespace paceline {

/// Remembers when each phase began, and writes it down at its end; nothing unless its ledger is on.
///
/// Threads  One at a time.
class PhaseLog {
 public:
  /// Forgets what has begun.
  ///
  /// Errors  UsageError if capacity is 0.
  void start(std::size_t capacity);
  [[nodiscard]] Ledger take() { return book_.take(); }

  /// A phase that has begun already begins anew.
  void begin(Phase what);
  /// Nothing if it has not begun since start().
  void end(Phase what);

 private:
  using Time = std::chrono::steady_clock::time_point;

  LedgerBook book_;
  std::array<std::optional<Time>, 3> begun_;  // [phase]
};

}  // namespace paceline
