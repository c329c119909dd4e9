// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Rule 1 of paceline/plan/schedule.h: what a kRecv or kFold computes. Private to sim.

#include <functional>
#include <span>
#include <vector>

#include "paceline/plan/schedule.h"
#include "paceline/sim/memory.h"
#include "paceline/sim/reference.h"

namespace paceline::sim {

/// The memory of a rank in the same call; another rank's is its window.
using MemoryOf = std::function<CallMemory&(int rank)>;

class Arithmetic {
 public:
  Arithmetic(Dtype dtype, ReduceOp op, int world) noexcept
      : dtype_(dtype), op_(op), world_(world) {}

  /// Does `elements` of `step` for `rank`; `incoming` holds what arrived for them.
  void apply(const plan::Step& step,
             int rank,
             Range elements,
             std::span<const std::byte> incoming,
             const MemoryOf& memory_of);

  /// Elements of `step.src` as they leave in a frame.
  [[nodiscard]] std::vector<std::byte> load(const plan::Step& step,
                                            Range elements,
                                            CallMemory& memory) const;

 private:
  [[nodiscard]] std::uint64_t gather(const plan::Step& step,
                                     int rank,
                                     std::uint64_t element,
                                     const MemoryOf& memory_of);
  void fold(std::uint64_t count);

  Dtype dtype_;
  ReduceOp op_;
  int world_;
  std::vector<Term> terms_;       // scratch of apply()
  std::vector<Target> targets_;   // scratch of apply()
  std::vector<std::byte> value_;  // scratch of fold()
};

}  // namespace paceline::sim
