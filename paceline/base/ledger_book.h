// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where a ledger is written down.

#include <atomic>
#include <cstddef>
#include <vector>

#include "paceline/base/ledger.h"
#include "paceline/base/mutex.h"

namespace paceline {

/// Collects records once it is started; before that, on() is all it costs.
///
/// Threads  Any.
class LedgerBook {
 public:
  /// Starts anew, from nothing.
  ///
  /// Errors  UsageError if capacity is 0.
  void start(std::size_t capacity);

  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }

  void add(CallRecord record);
  void add(const CopyRecord& record);
  void add(const PhaseRecord& record);

  /// What has been collected; stops.
  ///
  /// Errors  UsageError if it was not started.
  [[nodiscard]] Ledger take();

 private:
  template <typename Record>
  void add_to(std::vector<Record> Ledger::*records, Record record);

  std::atomic<bool> on_ = false;
  Mutex mutex_;
  std::size_t capacity_ PACELINE_GUARDED_BY(mutex_) = 0;
  Ledger ledger_ PACELINE_GUARDED_BY(mutex_);
};

}  // namespace paceline
