// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/memory/byte_ring.h"

#include <algorithm>
#include <cstring>

namespace paceline::link {

ByteRing::ByteRing(std::size_t capacity_bytes)
    : capacity_(capacity_bytes),
      bytes_(std::make_unique_for_overwrite<std::byte[]>(capacity_bytes)) {}

std::size_t ByteRing::write(std::span<const std::byte> bytes) noexcept {
  if (written_ - seen_tail_ + bytes.size() > capacity_)
    seen_tail_ = tail_.load(std::memory_order_acquire);
  const std::size_t count =
      std::min<std::size_t>(bytes.size(), capacity_ - (written_ - seen_tail_));
  if (count == 0) return 0;
  const std::size_t at = written_ % capacity_;
  const std::size_t first = std::min(count, capacity_ - at);
  std::memcpy(bytes_.get() + at, bytes.data(), first);
  if (first < count) std::memcpy(bytes_.get(), bytes.data() + first, count - first);
  written_ += count;
  return count;
}

std::size_t ByteRing::read(std::span<std::byte> into) noexcept {
  if (seen_head_ - read_ < into.size()) seen_head_ = head_.load(std::memory_order_acquire);
  const std::size_t count = std::min<std::size_t>(into.size(), seen_head_ - read_);
  if (count == 0) return 0;
  const std::size_t at = read_ % capacity_;
  const std::size_t first = std::min(count, capacity_ - at);
  std::memcpy(into.data(), bytes_.get() + at, first);
  if (first < count) std::memcpy(into.data() + first, bytes_.get(), count - first);
  read_ += count;
  return count;
}

bool ByteRing::has_room() const noexcept {
  return written_ - tail_.load(std::memory_order_seq_cst) < capacity_;
}

bool ByteRing::has_bytes() const noexcept { return head_.load(std::memory_order_seq_cst) != read_; }

}  // namespace paceline::link
