// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Memory that all ranks of one host map, and words that say how far each of them has come. What
/// the words and the boards mean belongs to comm.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace paceline::link {

/// One rank's view of all ranks' segments. A segment belongs to one rank and lies in memory that is
/// gone with its last process; it is never cut short, so that no access to it faults.
///
/// Threads  One at a time, except allocate(), offset_of(), owner_of() and the end of a block, which
///          are any thread's.
class Windows {
 public:
  /// Stages that each rank posts apart from each other, 0 to kStages - 1.
  static constexpr int kStages = 3;
  /// Bytes of a rank's board, all zero at first.
  static constexpr std::size_t kBoardBytes = std::size_t{1} << 20;

  Windows() = default;
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  virtual ~Windows() = default;

  /// This process's mapping of `rank`'s segment, committed or not.
  [[nodiscard]] virtual std::span<std::byte> segment(int rank) const noexcept = 0;
  /// A fixed part of `rank`'s segment, aligned to a cache line: written by `rank` alone.
  [[nodiscard]] virtual std::span<std::byte> board(int rank) const noexcept = 0;

  /// Says that this rank has come to `value` in `stage`; never less than before. All that this
  /// thread wrote before is seen by whoever then reads posted() >= value. Wakes the ranks that
  /// sleep until that, and only those.
  virtual void post(int stage, std::uint64_t value) noexcept = 0;
  /// How far `rank` has come in `stage`; 0 at first.
  [[nodiscard]] virtual std::uint64_t posted(int rank, int stage) const noexcept = 0;

  /// Memory in this rank's own segment, aligned to 64 bytes, committed and touched, not cleared
  /// when it is used again. It goes back with the last owner of the pointer, which keeps the
  /// segment alive.
  ///
  /// Errors  OutOfWindowMemory if the segment, the machine or a control group's limit cannot hold
  ///         it: never a fault later.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  /// Keeps this process's mapping of `rank`'s segment, and so its memory, while it lives.
  [[nodiscard]] virtual std::shared_ptr<const void> keep(int rank) const = 0;
  /// From now on, memory that goes back is not handed out again: peers may still write to it.
  virtual void quarantine() noexcept = 0;

  /// Which rank's segment, as this process maps it, has any byte of the memory; -1 if none has.
  [[nodiscard]] virtual int owner_of(const std::byte* data, std::size_t bytes) const noexcept = 0;
};

}  // namespace paceline::link
