// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A bounded queue of bytes between two threads, without locks.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace paceline::link {

/// Own cache lines keep the two sides from slowing each other down; two lines because processors
/// fetch them in pairs.
inline constexpr std::size_t kLine = 128;

/// Positions count bytes since the start, so that full and empty differ; 2^64 of them never wrap.
///
/// write() and read() move bytes, publish() and release() show the other side how far they got.
/// These two stores are sequentially consistent, and so are the loads of has_bytes() and
/// has_room(): a side that announces its sleep before it looks a last time is seen asleep by a side
/// that looks for sleepers after it moved. No wake is lost.
///
/// Threads  One writer (write, publish, has_room) and one reader (read, release, has_bytes).
class ByteRing {
 public:
  explicit ByteRing(std::size_t capacity_bytes);

  /// Takes a prefix of `bytes`. @return its length.
  std::size_t write(std::span<const std::byte> bytes) noexcept;
  void publish() noexcept { head_.store(written_, std::memory_order_seq_cst); }
  [[nodiscard]] bool has_room() const noexcept;

  /// Fills a prefix of `into`. @return its length.
  std::size_t read(std::span<std::byte> into) noexcept;
  void release() noexcept { tail_.store(read_, std::memory_order_seq_cst); }
  [[nodiscard]] bool has_bytes() const noexcept;

 private:
  const std::size_t capacity_;
  const std::unique_ptr<std::byte[]> bytes_;
  alignas(kLine) std::atomic<std::uint64_t> head_{0};  // the writer's: bytes that may be read
  alignas(kLine) std::atomic<std::uint64_t> tail_{
      0};                                     // the reader's: bytes that may be overwritten
  alignas(kLine) std::uint64_t written_ = 0;  // the writer's alone
  std::uint64_t seen_tail_ = 0;
  alignas(kLine) std::uint64_t read_ = 0;  // the reader's alone
  std::uint64_t seen_head_ = 0;
};

}  // namespace paceline::link
