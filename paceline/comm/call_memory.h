// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The memories that a schedule names, for one call: the caller's pieces and the call's own
/// scratch.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "paceline/comm/piece_list.h"
#include "paceline/plan/schedule.h"

namespace paceline {

/// Scratch buffers kept between calls, so that a training loop allocates only in its first step.
///
/// Threads  One at a time.
class ScratchPool {
 public:
  using Block = std::vector<std::byte>;
  /// At least `bytes` bytes, not cleared.
  [[nodiscard]] Block take(std::size_t bytes);
  void give_back(Block block);

 private:
  std::vector<Block> blocks_;
};

/// Where each element of each memory lies.
class CallMemory {
 public:
  CallMemory(const plan::Schedule& schedule,
             int rank,
             int world,
             Dtype dtype,
             std::uint64_t count,
             PieceList in,
             PieceList out);

  /// Takes the scratch that the schedule needs; before the first locate().
  void bind(ScratchPool& pool);
  void release(ScratchPool& pool);

  /// Contiguous memory from `element` on. `slot` is the rank whose inbox slot is meant.
  [[nodiscard]] Run locate(plan::Memory memory, int slot, std::uint64_t element) const;
  [[nodiscard]] static Form form_of(plan::Memory memory) noexcept {
    return memory == plan::Memory::kSum ? Form::kSum : Form::kT;
  }

  /// Of the schedule; set_stage() before the first locate() if it has a stage.
  [[nodiscard]] const plan::Staging& staging() const noexcept { return staging_; }
  [[nodiscard]] std::size_t stage_bytes() const noexcept {
    return stage_map_.size() * element_bytes_;
  }
  void set_stage(std::byte* stage) noexcept { stage_ = stage; }

  [[nodiscard]] const PieceList& in() const noexcept { return in_; }
  [[nodiscard]] const PieceList& out() const noexcept { return out_; }

  /// Whether any byte of the caller's memory belongs to both calls.
  [[nodiscard]] bool overlaps(const CallMemory& other) const;

 private:
  [[nodiscard]] Run locate_scratch(const ScratchPool::Block& block,
                                   std::size_t first_byte,
                                   Range range,
                                   std::size_t element_bytes,
                                   std::uint64_t element) const;

  int rank_;
  int world_;
  std::size_t element_bytes_;
  std::size_t sum_bytes_;  // of one element
  Range sum_range_;
  Range inbox_range_;
  bool sum_over_out_;
  bool in_place_;
  PieceList in_, out_;
  ScratchPool::Block sum_, inbox_;
  plan::Staging staging_;
  plan::StageMap stage_map_;
  std::byte* stage_ = nullptr;
};

}  // namespace paceline
