// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/call_memory.h"

#include <algorithm>
#include <utility>

#include "paceline/base/assert.h"
#include "paceline/base/error.h"

namespace paceline {

using plan::Memory;

ScratchPool::Block ScratchPool::take(std::size_t bytes) {
  if (bytes == 0) return {};
  const auto fits = std::find_if(blocks_.begin(), blocks_.end(),
                                 [&](const Block& b) { return b.size() >= bytes; });
  if (fits == blocks_.end()) return Block(bytes);
  Block block = std::move(*fits);
  blocks_.erase(fits);
  return block;
}

void ScratchPool::give_back(Block block) {
  if (block.empty()) return;
  constexpr std::size_t kKept = 16;
  blocks_.push_back(std::move(block));
  if (blocks_.size() > kKept) {  // the smallest one is the cheapest to make again
    blocks_.erase(
        std::min_element(blocks_.begin(), blocks_.end(),
                         [](const Block& a, const Block& b) { return a.size() < b.size(); }));
  }
}

CallMemory::CallMemory(const plan::Schedule& schedule,
                       int rank,
                       int world,
                       Dtype dtype,
                       std::uint64_t count,
                       PieceList in,
                       PieceList out)
    : rank_(rank),
      world_(world),
      element_bytes_(size_of(dtype)),
      sum_bytes_(size_of(dtype, Form::kSum)),
      sum_range_(schedule.sum),
      inbox_range_(schedule.inbox),
      sum_over_out_(schedule.sum_over_out && accumulation_type(dtype) == dtype &&
                    schedule.out == schedule.sum),
      in_place_(in == out),
      in_(std::move(in)),
      out_(std::move(out)),
      staging_(schedule.stage),
      stage_map_(count, world, schedule.stage) {
  if (!in_place_ && in_.overlaps(out_)) {
    throw UsageError("input and output overlap, but are not the same memory");
  }
}

void CallMemory::bind(ScratchPool& pool) {
  if (!sum_over_out_) sum_ = pool.take(sum_range_.size() * sum_bytes_);
  inbox_ = pool.take(inbox_range_.size() * element_bytes_ * static_cast<std::size_t>(world_));
}

void CallMemory::release(ScratchPool& pool) {
  pool.give_back(std::exchange(sum_, {}));
  pool.give_back(std::exchange(inbox_, {}));
}

Run CallMemory::locate_scratch(const ScratchPool::Block& block,
                               std::size_t first_byte,
                               Range range,
                               std::size_t element_bytes,
                               std::uint64_t element) const {
  PACELINE_ASSERT(element >= range.begin && element < range.end, "an element outside its memory");
  auto* base = const_cast<std::byte*>(block.data());
  return {base + first_byte + (element - range.begin) * element_bytes, range.end - element};
}

Run CallMemory::locate(Memory memory, int slot, std::uint64_t element) const {
  switch (memory) {
    case Memory::kIn: return in_.run(element);
    case Memory::kOut: return out_.run(element);
    case Memory::kSum:
      if (sum_over_out_) return out_.run(element);
      return locate_scratch(sum_, 0, sum_range_, sum_bytes_, element);
    case Memory::kInbox: {
      if (slot == rank_) return in_.run(element);
      const std::size_t slot_bytes = inbox_range_.size() * element_bytes_;
      return locate_scratch(inbox_, static_cast<std::size_t>(slot) * slot_bytes, inbox_range_,
                            element_bytes_, element);
    }
    case Memory::kStage: {
      const plan::StageMap::Place place = stage_map_.find(element);
      return {stage_ + place.index * element_bytes_, place.run};
    }
    case Memory::kNone: break;
  }
  PACELINE_ASSERT(false, "a step without memory");
  return {};
}

bool CallMemory::overlaps(const CallMemory& other) const {
  return in_.overlaps(other.in_) || in_.overlaps(other.out_) || out_.overlaps(other.in_) ||
         out_.overlaps(other.out_);
}

}  // namespace paceline
