// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Memory of an engine that is used again and again, in blocks of a few sizes, each found by its
/// address. What the blocks are for belongs to those who take them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "paceline/comm/engine.h"

namespace paceline {

struct BlockFigures {
  std::uint64_t blocks = 0;   ///< that the engine has given so far, each once
  std::uint64_t bytes = 0;    ///< of these
  std::uint64_t in_use = 0;   ///< blocks that have not come back yet
  std::uint64_t refused = 0;  ///< requests of a right size that the engine had no memory for
};

/// Hands out blocks; the one that came back last goes out first. Grows block by block, and never
/// shrinks while it lives. A size that the engine refused once is not asked for again.
///
/// A block may come back on any thread, at any time: a heap's destructor gives the engine what is
/// free, and the last block what it leaves. In a child process after fork() no heap hands out
/// anything, and nothing that comes back is used or freed: the memory is the parent's.
///
/// Threads  Any.
class BlockHeap {
 public:
  /// Of these sizes in bytes, and no others.
  BlockHeap(std::shared_ptr<Engine> engine, std::vector<std::size_t> sizes);
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;
  ~BlockHeap();

  /// A block of exactly `bytes` bytes, aligned to 64, not cleared; null if `bytes` is not one of
  /// the sizes, if there is no memory, or if the heap was closed.
  [[nodiscard]] std::byte* take(std::size_t bytes) noexcept;
  /// Whether the engine has refused a block of this size.
  [[nodiscard]] bool refuses(std::size_t bytes) const noexcept;

  /// Whether a block in use starts here, of this heap or another open one on the same engine.
  [[nodiscard]] bool reaches(const void* block) const noexcept;

  /// Never hands out anything again, nor does any other heap on the same engine: peers may still
  /// write to its blocks.
  void close() noexcept;

  [[nodiscard]] BlockFigures figures() const noexcept;

  /// From now on take_here() on this thread takes from this heap.
  void serve_here() noexcept;
  /// Undoes serve_here() if it is this heap that serves this thread.
  void leave_here() noexcept;
  /// take() of the heap that serves this thread; null if none does.
  [[nodiscard]] static std::byte* take_here(std::size_t bytes) noexcept;

  /// Whether a block of any heap starts here. If so it has come back.
  [[nodiscard]] static bool give_back(void* block) noexcept;

 private:
  const std::uint64_t number_;
};

}  // namespace paceline
