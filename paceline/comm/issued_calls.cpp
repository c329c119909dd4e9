// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/issued_calls.h"

#include <fmt/format.h>

namespace paceline {

CallId IssuedCalls::add(const Descriptor& descriptor) {
  const std::uint64_t hash = hash_of(descriptor);
  Entry entry{descriptor, hash};
  const MutexLock lock(mutex_);
  if (ring_.size() < kKept) {
    ring_.push_back(std::move(entry));
  } else {
    ring_[next_ % kKept] = std::move(entry);
  }
  return {next_++, hash};
}

const IssuedCalls::Entry* IssuedCalls::find(std::uint64_t sequence) const {
  if (sequence >= next_ || sequence + kKept < next_) return nullptr;
  return &ring_[sequence % kKept];
}

std::optional<std::uint64_t> IssuedCalls::issued_hash(std::uint64_t sequence) const {
  const MutexLock lock(mutex_);
  if (sequence >= next_) return std::nullopt;
  const Entry* entry = find(sequence);
  return entry == nullptr ? 0 : entry->hash;
}

std::uint64_t IssuedCalls::next() const {
  const MutexLock lock(mutex_);
  return next_;
}

store::Standing IssuedCalls::standing(std::uint64_t sequence) const {
  const MutexLock lock(mutex_);
  store::Standing standing{.sequence = sequence, .issued = next_, .hash = 0, .text = {}};
  if (const Entry* entry = find(sequence)) {
    standing.hash = entry->hash;
    standing.text = text_of(entry->descriptor);
  } else if (const Entry* last = next_ == 0 ? nullptr : find(next_ - 1)) {
    standing.text = text_of(last->descriptor);
  }
  return standing;
}

}  // namespace paceline
