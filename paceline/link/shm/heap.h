// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Memory of a rank's own segment, handed out in whole pages.

#include <cstddef>
#include <map>
#include <memory>
#include <optional>

#include "paceline/base/mutex.h"
#include "paceline/link/shm/segment.h"

namespace paceline::link {

/// Which ranges of [0, size) are free: first fit, and free neighbours are one range.
class FreeRanges {
 public:
  explicit FreeRanges(std::size_t size) {
    if (size != 0) size_at_.emplace(0, size);
  }
  /// Takes the first free range of `bytes` (not 0). @return where it begins.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes);

  struct Range {
    std::size_t begin = 0, end = 0;
  };
  /// Gives back what was taken. @return it and the free neighbours below `most` bytes.
  Range give(std::size_t begin, std::size_t bytes, std::size_t most);
  [[nodiscard]] std::size_t largest() const noexcept;

 private:
  std::map<std::size_t, std::size_t> size_at_;
};

/// Free ranges of 1 MiB and more have no pages: what is allocated is committed, and what goes back
/// is returned to the machine, or kept if it is smaller.
///
/// Threads  Any.
class SegmentHeap : public std::enable_shared_from_this<SegmentHeap> {
 public:
  explicit SegmentHeap(std::shared_ptr<Segment> segment);

  /// As Windows::allocate(). Also refuses in a process that was forked from the rank: it would hand
  /// out what the rank hands out too.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes);
  /// As Windows::quarantine().
  void quarantine() noexcept;

 private:
  [[nodiscard]] std::size_t take(std::size_t bytes);
  void commit(std::size_t begin, std::size_t bytes);
  void give_back(std::size_t begin, std::size_t bytes) noexcept;

  const std::shared_ptr<Segment> segment_;
  const std::size_t size_;
  const int process_id_;
  Mutex mutex_;
  FreeRanges free_ PACELINE_GUARDED_BY(mutex_);
  bool quarantined_ PACELINE_GUARDED_BY(mutex_) = false;
};

}  // namespace paceline::link
