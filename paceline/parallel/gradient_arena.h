// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Gradients born in memory that the links reach: an allocator of LibTorch's for the CPU, and the
/// blocks that it hands out while backward runs.

#include <memory>
#include <span>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "paceline/comm/block_heap.h"
#include "paceline/parallel/tensor_io.h"

namespace paceline {

/// A tensor of `like`'s shape, strides (row by row if it is not dense) and type over the elements
/// of `storage` from `offset` on. Autograd does not know it as a view.
[[nodiscard]] at::Tensor tensor_over(const c10::Storage& storage,
                                     std::int64_t offset,
                                     const at::Tensor& like);

/// Memory that the links reach without a copy, if there is any left; else ordinary memory, which
/// they copy. Aligned to 64 bytes; not cleared.
///
/// Errors  std::bad_alloc.
[[nodiscard]] Region reachable_if_possible(Engine& engine, std::size_t bytes);

/// Whole cache lines, so that what follows begins with one.
[[nodiscard]] constexpr std::size_t rounded_to_lines(std::size_t bytes) noexcept {
  return (bytes + 63) / 64 * 64;
}

/// `bytes` of the region from `offset` on; it keeps the region.
[[nodiscard]] c10::Storage storage_over(const Region& region,
                                        std::size_t offset,
                                        std::size_t bytes);
/// Whether its memory is a storage_over() something.
[[nodiscard]] bool lies_in_region(const at::Tensor& tensor);

/// Hands out blocks of the heap that serves the calling thread, for what asks for exactly their
/// size; all else, and what finds no block, it asks of the allocator that was there before.
///
/// Memory of the other allocator keeps that one's deleter. raw_deleter(), for memory that comes
/// without a deleter, tells blocks by their address; there is none if the other has none.
class ArenaAllocator final : public c10::Allocator {
 public:
  explicit ArenaAllocator(c10::Allocator& before) : before_(before) {}

  c10::DataPtr allocate(std::size_t bytes) override;
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;
  [[nodiscard]] bool is_simple_data_ptr(const c10::DataPtr& data) const override;

  /// Puts one before LibTorch's allocator for the CPU, once per process and for good: it may be
  /// asked for as long as tensors live. An allocator that is put in its place later stays.
  static void install();

 private:
  c10::Allocator& before_;
};

/// One wrapper's blocks: one size per size of a parameter that is not small.
///
/// Threads  Any, except that serve_here() and leave_here() are about the calling one.
class GradientArena {
 public:
  /// Gradients below this are better copied than handled one by one.
  static constexpr std::size_t kSmallestBytes = std::size_t{64} << 10;

  GradientArena(std::shared_ptr<Engine> engine, std::span<const NamedTensor> parameters);

  /// From now on tensors that this thread makes may lie in the arena.
  void serve_here() noexcept { heap_.serve_here(); }
  void leave_here() noexcept { heap_.leave_here(); }

  /// Whether the tensor's memory is a block. False in a forked child, and after a failed step.
  [[nodiscard]] bool holds(const at::Tensor& tensor) const noexcept;
  /// A block as a tensor like `parameter`, not cleared; undefined if there is none.
  [[nodiscard]] at::Tensor make_like(const at::Tensor& parameter);
  [[nodiscard]] bool exhausted_for(std::size_t bytes) const noexcept {
    return heap_.refuses(bytes);
  }

  /// After a failed step: peers may still write to its blocks, so none is handed out again.
  void close() noexcept { heap_.close(); }
  [[nodiscard]] BlockFigures figures() const noexcept { return heap_.figures(); }

 private:
  BlockHeap heap_;
};

}  // namespace paceline
