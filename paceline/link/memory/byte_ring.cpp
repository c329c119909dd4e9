// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/memory/byte_ring.h"

#include <algorithm>
#include <cstring>

namespace paceline::link {

struct ByteRing::Own {
  explicit Own(std::size_t capacity_bytes)
      : bytes(std::make_unique_for_overwrite<std::byte[]>(capacity_bytes)) {}
  RingPositions positions;
  std::unique_ptr<std::byte[]> bytes;
};

ByteRing::ByteRing(std::size_t capacity_bytes)
    : own_(std::make_shared<Own>(capacity_bytes)),
      shown_(own_->positions),
      bytes_(own_->bytes.get(), capacity_bytes) {}

ByteRing::ByteRing(RingPositions& positions, std::span<std::byte> bytes) noexcept
    : shown_(positions), bytes_(bytes) {}

std::uint64_t ByteRing::checked(std::uint64_t position,
                                std::uint64_t bytes_between,
                                std::uint64_t otherwise) noexcept {
  if (bytes_between <= bytes_.size()) return position;
  broken_.store(true, std::memory_order_relaxed);
  return otherwise;
}

std::size_t ByteRing::write(std::span<const std::byte> bytes) noexcept {
  const std::size_t capacity = bytes_.size();
  if (written_ - seen_tail_ + bytes.size() > capacity) {
    const std::uint64_t tail = shown_.tail.load(std::memory_order_acquire);
    seen_tail_ = checked(tail, written_ - tail, seen_tail_);
  }
  const std::size_t count = std::min<std::size_t>(bytes.size(), capacity - (written_ - seen_tail_));
  if (count == 0) return 0;
  const std::size_t at = written_ % capacity;
  const std::size_t first = std::min(count, capacity - at);
  std::memcpy(bytes_.data() + at, bytes.data(), first);
  if (first < count) std::memcpy(bytes_.data(), bytes.data() + first, count - first);
  written_ += count;
  return count;
}

std::size_t ByteRing::read(std::span<std::byte> into) noexcept {
  const std::size_t capacity = bytes_.size();
  if (seen_head_ - read_ < into.size()) {
    const std::uint64_t head = shown_.head.load(std::memory_order_acquire);
    seen_head_ = checked(head, head - read_, seen_head_);
  }
  const std::size_t count = std::min<std::size_t>(into.size(), seen_head_ - read_);
  if (count == 0) return 0;
  const std::size_t at = read_ % capacity;
  const std::size_t first = std::min(count, capacity - at);
  std::memcpy(into.data(), bytes_.data() + at, first);
  if (first < count) std::memcpy(into.data() + first, bytes_.data(), count - first);
  read_ += count;
  return count;
}

bool ByteRing::has_room() const noexcept {
  return written_ - shown_.tail.load(std::memory_order_seq_cst) != bytes_.size();
}

bool ByteRing::has_bytes() const noexcept {
  return shown_.head.load(std::memory_order_seq_cst) != read_;
}

}  // namespace paceline::link
