// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A bounded queue of bytes between two threads, of one process or of two, without locks.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace paceline::link {

/// Own cache lines keep the two sides from slowing each other down; two lines because processors
/// fetch them in pairs.
inline constexpr std::size_t kLine = 128;

/// How far the two sides of a ring have come, as they show each other. All zero at first, so that
/// it may lie in fresh shared memory.
struct RingPositions {
  alignas(kLine) std::atomic<std::uint64_t> head{0};  ///< the writer's: bytes that may be read
  alignas(kLine) std::atomic<std::uint64_t> tail{0};  ///< the reader's: bytes that may be reused
};

/// Positions count bytes since the start, so that full and empty differ; 2^64 of them never wrap.
///
/// write() and read() move bytes, publish() and release() show the other side how far they got.
/// These two stores are sequentially consistent, and so are the loads of has_bytes() and
/// has_room(): a side that announces its sleep before it looks a last time is seen asleep by a side
/// that looks for sleepers after it moved. No wake is lost.
///
/// A side that shows a position which cannot be, as a broken process might, is ignored: the other
/// one is told by is_broken(), and never touches a byte outside.
///
/// Threads  One writer (write, publish, has_room) and one reader (read, release, has_bytes). Both
///          may use one ring, or each its own over the same memory.
class ByteRing {
 public:
  /// A ring in memory of its own.
  explicit ByteRing(std::size_t capacity_bytes);
  /// A ring in memory that outlives it.
  ByteRing(RingPositions& positions, std::span<std::byte> bytes) noexcept;

  /// Takes a prefix of `bytes`. @return its length.
  std::size_t write(std::span<const std::byte> bytes) noexcept;
  void publish() noexcept { shown_.head.store(written_, std::memory_order_seq_cst); }
  [[nodiscard]] bool has_room() const noexcept;

  /// Fills a prefix of `into`. @return its length.
  std::size_t read(std::span<std::byte> into) noexcept;
  void release() noexcept { shown_.tail.store(read_, std::memory_order_seq_cst); }
  [[nodiscard]] bool has_bytes() const noexcept;

  /// Whether a write() or read() met a position that cannot be.
  [[nodiscard]] bool is_broken() const noexcept { return broken_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] std::uint64_t checked(std::uint64_t position,
                                      std::uint64_t bytes_between,
                                      std::uint64_t otherwise) noexcept;

  struct Own;
  const std::shared_ptr<Own> own_;  // where the ring lies if it is its own
  RingPositions& shown_;
  const std::span<std::byte> bytes_;
  std::atomic<bool> broken_{false};
  alignas(kLine) std::uint64_t written_ = 0;  // the writer's alone
  std::uint64_t seen_tail_ = 0;
  alignas(kLine) std::uint64_t read_ = 0;  // the reader's alone
  std::uint64_t seen_head_ = 0;
};

}  // namespace paceline::link
