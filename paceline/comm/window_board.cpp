// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/window_board.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <utility>

#include "paceline/base/assert.h"
#include "paceline/comm/call_state.h"
#include "paceline/comm/link_error.h"

namespace paceline {

/// What a rank says of one call. Plain data: it is read by other processes. For memory in one part
/// the first cache line has all of it.
struct alignas(64) WindowBoard::Slot {
  static constexpr std::size_t kBytes = link::Windows::kBoardBytes / kSlots;
  static constexpr std::size_t kInlineParts = 900;
  static constexpr std::uint32_t kOutIsIn = ~std::uint32_t{0};
  std::uint64_t sequence;
  std::uint64_t hash;
  std::uint64_t memory;  // offset of the stage; if there is none, of the parts, kIn's then kOut's
  std::uint32_t in_parts;
  std::uint32_t out_parts;  // or kOutIsIn
  std::uint32_t stage_slices;
  std::uint32_t stage_slots;
  std::array<WindowPart, kInlineParts> inline_parts;
  alignas(64) std::array<std::byte, kInlineStage> inline_stage;
};

Run PeerWindow::locate(plan::Memory memory, std::uint64_t element) const {
  if (staged_) {
    const plan::StageMap::Place place = stage_map_.find(element);
    return {segment_ + stage_ + place.index * element_bytes_, place.run};
  }
  const auto parts = memory == plan::Memory::kIn ? in_ : out_;
  const auto after =
      std::upper_bound(parts.begin(), parts.end(), element,
                       [](std::uint64_t e, const WindowPart& part) { return e < part.begin; });
  PACELINE_ASSERT(after != parts.begin() && element < (after - 1)->end,
                  "an element outside of a window");
  const WindowPart& part = *(after - 1);
  return {segment_ + part.offset + (element - part.begin) * element_bytes_, part.end - element};
}

WindowBoard::WindowBoard(int rank, int world, link::Windows& windows)
    : rank_(rank), world_(world), windows_(windows) {
  static_assert(sizeof(Slot) <= Slot::kBytes);
  static_assert(offsetof(Slot, inline_parts) + sizeof(WindowPart) <= alignof(Slot));
}

WindowBoard::Slot& WindowBoard::slot_of(int rank, std::uint64_t sequence) const {
  std::byte* const board = windows_.board(rank).data();
  return *std::launder(reinterpret_cast<Slot*>(board + sequence % kSlots * Slot::kBytes));
}

std::uint64_t WindowBoard::offset_of(const std::byte* data) const {
  return static_cast<std::uint64_t>(data - windows_.segment(rank_).data());
}

bool WindowBoard::open(CallState& call, std::uint64_t oldest) {
  if (is_ahead(call, oldest)) return false;
  Held& held = held_[call.sequence % kSlots];
  if (held.used && !have_all_ended(held.sequence)) return false;
  held = {.used = true, .sequence = call.sequence};
  Slot& slot = slot_of(rank_, call.sequence);
  slot.sequence = call.sequence;
  slot.hash = call.hash;
  give_stage(slot, held, call);
  write_parts(slot, held, call);
  return true;
}

// Looks at the peers' words only when what it saw last is not enough.
bool WindowBoard::have_all_ended(std::uint64_t sequence) {
  if (sequence < all_ended_) return true;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    least = std::min(least, posted(peer, kEnded));
    if (least <= sequence) return false;
  }
  all_ended_ = least;
  return true;
}

bool WindowBoard::is_ahead(const CallState& call, std::uint64_t oldest) noexcept {
  return call.sequence >= oldest + kSlots;
}

std::uint64_t WindowBoard::blocked_by(const CallState& call) const {
  return held_[call.sequence % kSlots].sequence;
}

void WindowBoard::give_stage(Slot& slot, Held& held, CallState& call) {
  const plan::Staging staging = call.memory.staging();
  slot.stage_slices = staging.slices;
  slot.stage_slots = staging.slots;
  if (staging.slices == 0) return;
  const std::size_t bytes = call.memory.stage_bytes();
  std::byte* stage = slot.inline_stage.data();
  if (bytes > kInlineStage) {
    Block block = take_block(bytes);
    stage = block.data.get();
    if (staging.outlives) {
      held.stage = std::move(block.data);
    } else {
      call.stage = std::move(block.data);
      call.stage_bytes = block.bytes;
    }
  }
  call.memory.set_stage(stage);
  slot.memory = offset_of(stage);
}

WindowBoard::Block WindowBoard::take_block(std::size_t bytes) {
  const auto fits = std::find_if(blocks_.begin(), blocks_.end(),
                                 [&](const Block& block) { return block.bytes >= bytes; });
  if (fits == blocks_.end()) return {windows_.allocate(bytes), bytes};
  Block block = std::move(*fits);
  blocks_.erase(fits);
  return block;
}

void WindowBoard::write_parts(Slot& slot, Held& held, const CallState& call) {
  slot.in_parts = slot.out_parts = 0;
  if (slot.stage_slices != 0 || !call.resident) return;
  const PieceList& in = call.memory.in();
  static const PieceList kNothing;
  const bool reaches_out = plan::writes_others_output(call.descriptor.what);
  const PieceList& out = reaches_out ? call.memory.out() : kNothing;
  const bool out_is_in = in == out;
  slot.in_parts = static_cast<std::uint32_t>(in.size());
  slot.out_parts = out_is_in ? Slot::kOutIsIn : static_cast<std::uint32_t>(out.size());
  WindowPart* parts = slot.inline_parts.data();
  const std::size_t count = in.size() + (out_is_in ? 0 : out.size());
  if (count > Slot::kInlineParts) {
    held.parts = windows_.allocate(count * sizeof(WindowPart));
    parts = reinterpret_cast<WindowPart*>(held.parts.get());
  }
  slot.memory = offset_of(reinterpret_cast<const std::byte*>(parts));
  const auto write = [&](std::byte* data, std::uint64_t begin, std::uint64_t end) {
    new (parts++) WindowPart{begin, end, offset_of(data)};
  };
  in.for_each(write);
  if (!out_is_in) out.for_each(write);
}

void WindowBoard::close(CallState& call) {
  constexpr std::size_t kKept = 8;
  if (!call.stage) return;
  if (blocks_.size() == kKept) {
    blocks_.erase(std::min_element(blocks_.begin(), blocks_.end(),
                                   [](const auto& a, const auto& b) { return a.bytes < b.bytes; }));
  }
  blocks_.push_back({std::move(call.stage), call.stage_bytes});
}

void WindowBoard::look_up(CallState& call, int peer) const {
  PeerWindow& window = call.windows[static_cast<std::size_t>(peer)];
  if (window.known()) return;
  const Slot& slot = slot_of(peer, call.sequence);
  if (slot.sequence != call.sequence || slot.hash != call.hash) {
    throw DescriptorDiffers(peer, call.sequence);
  }
  window.segment_ = windows_.segment(peer).data();
  window.element_bytes_ = size_of(call.descriptor.dtype);
  window.staged_ = slot.stage_slices != 0;
  if (window.staged_) {
    window.stage_ = slot.memory;
    window.stage_map_ = plan::StageMap(call.descriptor.count, world_,
                                       {.slices = slot.stage_slices, .slots = slot.stage_slots});
    return;
  }
  const auto* parts = reinterpret_cast<const WindowPart*>(window.segment_ + slot.memory);
  window.in_ = {parts, slot.in_parts};
  window.out_ = slot.out_parts == Slot::kOutIsIn
                    ? window.in_
                    : std::span<const WindowPart>{parts + slot.in_parts, slot.out_parts};
}

void WindowBoard::post_ended(std::uint64_t sequence) {
  if (sequence <= ended_) return;
  ended_ = sequence;
  windows_.post(kEnded, sequence);
}

}  // namespace paceline
