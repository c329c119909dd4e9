// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/shm/heap.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/link/link.h"
#include "paceline/net/host.h"
#include "paceline/net/memory_limits.h"
#include "paceline/net/system_error.h"

namespace paceline::link {
namespace {

constexpr std::size_t kReturned = 1 << 20;  // free ranges of so many bytes have no pages

}  // namespace

std::optional<std::size_t> FreeRanges::take(std::size_t bytes) {
  const auto fits = std::find_if(size_at_.begin(), size_at_.end(),
                                 [=](const auto& range) { return range.second >= bytes; });
  if (fits == size_at_.end()) return std::nullopt;
  const auto [begin, size] = *fits;
  size_at_.erase(fits);
  if (size > bytes) size_at_.emplace(begin + bytes, size - bytes);
  return begin;
}

FreeRanges::Range FreeRanges::give(std::size_t begin, std::size_t bytes, std::size_t most) {
  Range whole{.begin = begin, .end = begin + bytes};
  Range bare = whole;
  const auto next = size_at_.lower_bound(begin);
  if (next != size_at_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      whole.begin = before->first;
      if (before->second < most) bare.begin = before->first;
      size_at_.erase(before);
    }
  }
  if (next != size_at_.end() && next->first == whole.end) {
    whole.end += next->second;
    if (next->second < most) bare.end = whole.end;
    size_at_.erase(next);
  }
  size_at_.emplace(whole.begin, whole.end - whole.begin);
  return whole.end - whole.begin < most ? Range{} : bare;
}

std::size_t FreeRanges::largest() const noexcept {
  std::size_t most = 0;
  for (const auto& [begin, size] : size_at_) most = std::max(most, size);
  return most;
}

SegmentHeap::SegmentHeap(std::shared_ptr<Segment> segment)
    : segment_(std::move(segment)),
      size_(segment_->bytes().size() - segment_->heap_offset()),
      process_id_(net::process_id()),
      free_(size_) {}

std::shared_ptr<std::byte> SegmentHeap::allocate(std::size_t bytes) {
  if (net::process_id() != process_id_)
    throw OutOfWindowMemory("a process forked from the rank has no window of its own");
  const std::size_t page = net::page_bytes();
  if (bytes > size_)
    throw OutOfWindowMemory(fmt::format("a window of {} cannot hold {}", net::name_bytes(size_),
                                        net::name_bytes(bytes)));
  const std::size_t whole = std::max<std::size_t>(1, (bytes + page - 1) / page) * page;
  const std::size_t begin = take(whole);
  commit(begin, whole);
  const auto end = [self = shared_from_this(), begin, whole](std::byte*) {
    self->give_back(begin, whole);
  };
  return {&segment_->bytes()[segment_->heap_offset() + begin], end};
}

void SegmentHeap::quarantine() noexcept {
  const MutexLock lock(mutex_);
  quarantined_ = true;
}

std::size_t SegmentHeap::take(std::size_t bytes) {
  const MutexLock lock(mutex_);
  if (const auto begin = free_.take(bytes)) return *begin;
  throw OutOfWindowMemory(fmt::format(
      "a window of {} has no {} left in one piece, the largest is {}", net::name_bytes(size_),
      net::name_bytes(bytes), net::name_bytes(free_.largest())));
}

void SegmentHeap::commit(std::size_t begin, std::size_t bytes) {
  try {
    segment_->memory().commit(segment_->heap_offset() + begin, bytes);
  } catch (const net::SystemError& error) {
    give_back(begin, bytes);
    throw OutOfWindowMemory(error.what());
  }
}

void SegmentHeap::give_back(std::size_t begin, std::size_t bytes) noexcept {
  if (net::process_id() != process_id_) return;  // it is still the rank's
  const MutexLock lock(mutex_);
  if (quarantined_) return;
  const auto bare = free_.give(begin, bytes, kReturned);
  // Under the lock, so that nobody has taken a neighbour meanwhile.
  segment_->memory().give_back(segment_->heap_offset() + bare.begin, bare.end - bare.begin);
}

}  // namespace paceline::link
