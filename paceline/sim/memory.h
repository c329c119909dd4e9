// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What one rank holds during one call, addressed by logical element. Private to sim.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "paceline/plan/schedule.h"

namespace paceline::sim {

/// Elements that lie side by side in memory.
struct Stretch {
  std::byte* data = nullptr;
  std::uint64_t count = 0;
  Form form = Form::kT;
};

/// A logical buffer over `range`, made of pieces; the cuts are logical elements.
class PieceBuffer {
 public:
  PieceBuffer() = default;
  PieceBuffer(Range range, std::size_t element_bytes, std::vector<std::uint64_t> cuts);
  [[nodiscard]] Range range() const noexcept { return range_; }
  /// From `element` to the end of its piece.
  [[nodiscard]] Stretch at(std::uint64_t element);
  /// All ones in every byte: NaN for floats, so that a read of stale memory shows.
  void scribble();

 private:
  Range range_;
  std::size_t element_bytes_ = 1;
  std::vector<std::uint64_t> begins_;
  std::vector<std::vector<std::byte>> pieces_;
};

/// How a rank's memory lies; anything goes, so tests try all of it.
struct Layout {
  bool in_place = true;      ///< kIn and kOut are one memory
  bool sum_over_out = true;  ///< kSum lies over kOut where the schedule and the type allow it
  std::vector<std::uint64_t> cuts;  ///< where kIn and kOut are cut into pieces, ascending
};

class CallMemory {
 public:
  CallMemory(const plan::Schedule& schedule,
             const plan::Shape& shape,
             Dtype dtype,
             const Layout& layout);

  /// From `element` of `memory` on; `slot` is the inbox's.
  ///
  /// Errors  BrokenRule if the schedule did not say that `memory` holds `element`.
  [[nodiscard]] Stretch at(plan::Memory memory, int slot, std::uint64_t element);

  /// The same in another rank's window.
  [[nodiscard]] Stretch at_window(plan::Memory memory, std::uint64_t element);

  /// The elements of kIn, kOut, side by side.
  void write_in(std::span<const std::byte> values);
  [[nodiscard]] std::vector<std::byte> read_out();
  /// The caller uses its memory for something else.
  void scribble();

 private:
  [[nodiscard]] Stretch at_own(std::vector<std::byte>& memory,
                               Range range,
                               std::uint64_t first,
                               std::uint64_t element,
                               Form form);
  [[nodiscard]] PieceBuffer& in() noexcept { return in_place_ ? out_ : in_; }

  Dtype dtype_;
  Range in_range_, out_range_, sum_range_, inbox_range_;
  bool in_place_, sum_over_out_;
  bool has_stage_ = false;
  PieceBuffer in_, out_;
  plan::StageMap stage_map_;
  std::vector<std::byte> sum_, inbox_, stage_;
};

}  // namespace paceline::sim
