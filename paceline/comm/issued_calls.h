// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The last calls that this rank has issued: what they were, for frames and for errors.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/mutex.h"
#include "paceline/comm/descriptor.h"
#include "paceline/comm/incoming.h"
#include "paceline/store/control.h"

namespace paceline {

/// Threads  Any.
class IssuedCalls final : public CallHistory {
 public:
  /// Records the next call.
  CallId add(const Descriptor& descriptor) PACELINE_EXCLUDES(mutex_);

  [[nodiscard]] std::optional<std::uint64_t> issued_hash(std::uint64_t sequence) const override
      PACELINE_EXCLUDES(mutex_);
  /// Sequence number of the next call.
  [[nodiscard]] std::uint64_t next() const PACELINE_EXCLUDES(mutex_);
  /// For the control channel; hash 0 and the text of the last call if this one is not known here.
  [[nodiscard]] store::Standing standing(std::uint64_t sequence) const PACELINE_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kKept = 256;
  struct Entry {
    Descriptor descriptor;
    std::uint64_t hash = 0;
  };
  [[nodiscard]] const Entry* find(std::uint64_t sequence) const PACELINE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<Entry> ring_ PACELINE_GUARDED_BY(mutex_);
  std::uint64_t next_ PACELINE_GUARDED_BY(mutex_) = 0;
};

}  // namespace paceline
