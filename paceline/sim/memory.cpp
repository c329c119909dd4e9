// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "paceline/sim/broken_rule.h"

namespace paceline::sim {
namespace {

constexpr std::byte kScribble{0xff};

std::string_view name_of(plan::Memory memory) {
  switch (memory) {
    case plan::Memory::kNone: return "no memory";
    case plan::Memory::kIn: return "in";
    case plan::Memory::kOut: return "out";
    case plan::Memory::kSum: return "sum";
    case plan::Memory::kInbox: return "inbox";
    case plan::Memory::kStage: return "stage";
  }
  return "unknown memory";
}

Range hull(Range a, Range b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

}  // namespace

PieceBuffer::PieceBuffer(Range range, std::size_t element_bytes, std::vector<std::uint64_t> cuts)
    : range_(range), element_bytes_(element_bytes) {
  begins_.push_back(range.begin);
  for (std::uint64_t cut : cuts) {
    if (cut > range.begin && cut < range.end) begins_.push_back(cut);
  }
  for (std::size_t i = 0; i < begins_.size(); ++i) {
    const std::uint64_t end = i + 1 < begins_.size() ? begins_[i + 1] : range.end;
    pieces_.emplace_back((end - begins_[i]) * element_bytes, kScribble);
  }
}

Stretch PieceBuffer::at(std::uint64_t element) {
  std::size_t i = 0;
  if (begins_.size() > 1) {
    const auto next = std::upper_bound(begins_.begin(), begins_.end(), element);
    i = static_cast<std::size_t>(next - begins_.begin()) - 1;
  }
  const std::uint64_t offset = (element - begins_[i]) * element_bytes_;
  return {pieces_[i].data() + offset, (pieces_[i].size() - offset) / element_bytes_, Form::kT};
}

void PieceBuffer::scribble() {
  for (auto& piece : pieces_) std::fill(piece.begin(), piece.end(), kScribble);
}

CallMemory::CallMemory(const plan::Schedule& schedule,
                       const plan::Shape& shape,
                       Dtype dtype,
                       const Layout& layout)
    : dtype_(dtype),
      in_range_(schedule.in),
      out_range_(schedule.out),
      sum_range_(schedule.sum),
      inbox_range_(schedule.inbox),
      in_place_(layout.in_place),
      sum_over_out_(layout.sum_over_out && schedule.sum_over_out &&
                    accumulation_type(dtype) == dtype) {
  const std::size_t bytes = size_of(dtype);
  if (!in_place_) in_ = PieceBuffer(in_range_, bytes, layout.cuts);
  out_ = PieceBuffer(in_place_ ? hull(in_range_, out_range_) : out_range_, bytes, layout.cuts);
  if (!sum_over_out_) sum_.resize(sum_range_.size() * size_of(dtype, Form::kSum), kScribble);
  const auto slots = static_cast<std::size_t>(shape.world);
  inbox_.resize(slots * inbox_range_.size() * bytes, kScribble);
  if (schedule.stage.slices != 0) {
    stage_map_ = plan::StageMap(shape.count, shape.world, schedule.stage);
    stage_.resize(stage_map_.size() * bytes, kScribble);
    has_stage_ = true;
  }
}

Stretch CallMemory::at_own(std::vector<std::byte>& memory,
                           Range range,
                           std::uint64_t first,
                           std::uint64_t element,
                           Form form) {
  const std::uint64_t index = first + element - range.begin;
  return {memory.data() + index * size_of(dtype_, form), range.end - element, form};
}

Stretch CallMemory::at(plan::Memory memory, int slot, std::uint64_t element) {
  const auto stretch = [&](Range range, auto find) {
    if (element < range.begin || element >= range.end) {
      throw BrokenRule(fmt::format("element {} lies outside of {}, which holds [{}, {})", element,
                                   name_of(memory), range.begin, range.end));
    }
    Stretch found = find();
    found.count = std::min(found.count, range.end - element);
    return found;
  };
  switch (memory) {
    case plan::Memory::kIn: return stretch(in_range_, [&] { return in().at(element); });
    case plan::Memory::kOut: return stretch(out_range_, [&] { return out_.at(element); });
    case plan::Memory::kSum:
      return stretch(sum_range_, [&] {
        return sum_over_out_ ? out_.at(element) : at_own(sum_, sum_range_, 0, element, Form::kSum);
      });
    case plan::Memory::kInbox:
      return stretch(inbox_range_, [&] {
        const auto first = static_cast<std::uint64_t>(slot) * inbox_range_.size();
        return at_own(inbox_, inbox_range_, first, element, Form::kT);
      });
    case plan::Memory::kStage: {
      if (!has_stage_) throw BrokenRule("a step names the stage of a schedule that has none");
      const plan::StageMap::Place place = stage_map_.find(element);
      return {stage_.data() + place.index * size_of(dtype_), place.run, Form::kT};
    }
    case plan::Memory::kNone: break;
  }
  throw BrokenRule("a step names no memory");
}

Stretch CallMemory::at_window(plan::Memory memory, std::uint64_t element) {
  return at(has_stage_ ? plan::Memory::kStage : memory, 0, element);
}

void CallMemory::write_in(std::span<const std::byte> values) {
  const std::size_t bytes = size_of(dtype_);
  for (std::uint64_t e = in_range_.begin; e < in_range_.end;) {
    const Stretch to = at(plan::Memory::kIn, 0, e);
    std::memcpy(to.data, values.data() + (e - in_range_.begin) * bytes, to.count * bytes);
    e += to.count;
  }
}

std::vector<std::byte> CallMemory::read_out() {
  const std::size_t bytes = size_of(dtype_);
  std::vector<std::byte> values(out_range_.size() * bytes);
  for (std::uint64_t e = out_range_.begin; e < out_range_.end;) {
    const Stretch from = at(plan::Memory::kOut, 0, e);
    std::memcpy(values.data() + (e - out_range_.begin) * bytes, from.data, from.count * bytes);
    e += from.count;
  }
  return values;
}

void CallMemory::scribble() {
  in_.scribble();
  out_.scribble();
}

}  // namespace paceline::sim
