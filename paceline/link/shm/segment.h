// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What lies where in the memory that one rank shares with its peers: head, words to wait on, byte
/// rings to each peer, board, heap.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "paceline/link/memory/byte_ring.h"
#include "paceline/link/shm/waiting.h"
#include "paceline/net/shared_memory.h"

namespace paceline::link {

/// The same for all ranks of a job.
struct SegmentShape {
  int world = 1;
  std::size_t ring_bytes = 0;     ///< in flight to one peer
  std::size_t segment_bytes = 0;  ///< in all; whole pages

  [[nodiscard]] std::size_t ring_offset(int peer) const noexcept;
  [[nodiscard]] std::size_t board_offset() const noexcept;
  [[nodiscard]] std::size_t heap_offset() const noexcept;
};

/// As much as the machine has memory, at most 16 TiB over all ranks, if `wanted` is 0; else at
/// least what head, rings and board need. Whole pages.
///
/// Errors  UsageError if world is not 1 to kMostShmRanks, or ring_bytes is 0 or above 1 GiB.
[[nodiscard]] SegmentShape segment_shape(int world, std::size_t ring_bytes, std::size_t wanted);

/// One mapping of one rank's segment.
class Segment {
 public:
  /// The own one: head, rings and board are committed, the heap is not.
  ///
  /// Errors  net::SystemError.
  [[nodiscard]] static std::shared_ptr<Segment> create(const SegmentShape& shape, int rank);
  /// A peer's, from the descriptor that it sent.
  ///
  /// Errors  net::SystemError: the file is not as SharedMemory::map() needs it, or what it holds is
  ///         no segment of this shape and rank.
  [[nodiscard]] static std::shared_ptr<Segment> map(const SegmentShape& shape,
                                                    int rank,
                                                    const net::Fd& file);

  [[nodiscard]] const net::SharedMemory& memory() const noexcept { return memory_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return memory_.bytes(); }
  [[nodiscard]] std::span<std::byte> board() const noexcept;
  [[nodiscard]] std::size_t heap_offset() const noexcept { return shape_.heap_offset(); }

  [[nodiscard]] WaitWords& words() const noexcept;
  /// The ring of what this rank sends to `peer`, and whether it has closed that link.
  [[nodiscard]] RingPositions& positions_to(int peer) const noexcept;
  [[nodiscard]] std::span<std::byte> ring_to(int peer) const noexcept;
  [[nodiscard]] std::atomic<std::uint32_t>& closed_to(int peer) const noexcept;

 private:
  Segment(const SegmentShape& shape, net::SharedMemory memory)
      : shape_(shape), memory_(std::move(memory)) {}

  const SegmentShape shape_;
  const net::SharedMemory memory_;
};

}  // namespace paceline::link
