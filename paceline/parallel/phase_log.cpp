// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/phase_log.h"

#include <utility>

namespace paceline {

void PhaseLog::start(std::size_t capacity) {
  book_.start(capacity);
  begun_ = {};
}

void PhaseLog::begin(Phase what) {
  if (book_.on()) begun_.at(static_cast<std::size_t>(what)) = std::chrono::steady_clock::now();
}

void PhaseLog::end(Phase what) {
  if (!book_.on()) return;
  const auto begin = std::exchange(begun_.at(static_cast<std::size_t>(what)), std::nullopt);
  if (!begin) return;
  book_.add(PhaseRecord{.what = what, .begin = *begin, .end = std::chrono::steady_clock::now()});
}

}  // namespace paceline
