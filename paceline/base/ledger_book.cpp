// SPDX-License-Identifier: Apache-2.0
#include "paceline/base/ledger_book.h"

#include <utility>

#include "paceline/base/error.h"

namespace paceline {

std::string_view name_of(Copy what) noexcept {
  switch (what) {
    case Copy::kReplicate: return "replicate";
    case Copy::kScatter: return "scatter";
    case Copy::kGather: return "gather";
    case Copy::kReduce: return "reduce";
    case Copy::kState: return "state";
  }
  return "unknown";
}

std::string_view name_of(Phase what) noexcept {
  switch (what) {
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kWait: return "wait";
  }
  return "unknown";
}

void LedgerBook::start(std::size_t capacity) {
  if (capacity == 0) throw UsageError("a ledger of capacity 0 records nothing; it must be above 0");
  const MutexLock lock(mutex_);
  capacity_ = capacity;
  ledger_ = {};
  on_.store(true, std::memory_order_relaxed);
}

template <typename Record>
void LedgerBook::add_to(std::vector<Record> Ledger::*records, Record record) {
  const MutexLock lock(mutex_);
  if (!on()) return;
  std::vector<Record>& kept = ledger_.*records;
  if (kept.size() < capacity_) {
    kept.push_back(std::move(record));
  } else {
    ++ledger_.left_out;
  }
}

void LedgerBook::add(CallRecord record) { add_to(&Ledger::calls, std::move(record)); }
void LedgerBook::add(const CopyRecord& record) { add_to(&Ledger::copies, record); }
void LedgerBook::add(const PhaseRecord& record) { add_to(&Ledger::phases, record); }

Ledger LedgerBook::take() {
  const MutexLock lock(mutex_);
  if (!on()) throw UsageError("the ledger was not started");
  on_.store(false, std::memory_order_relaxed);
  return std::exchange(ledger_, {});
}

}  // namespace paceline
