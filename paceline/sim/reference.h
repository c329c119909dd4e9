// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The reference twin of kernel::fold: the same rules in plain loops, one element at a time, with
/// 16-bit conversions of its own. Slow on purpose; nothing here is shared with kernel.

#include <cstddef>
#include <cstdint>
#include <span>

#include "paceline/base/types.h"

namespace paceline::sim {

/// One operand: elements at `data`, any alignment.
struct Term {
  const std::byte* data = nullptr;
  Form form = Form::kT;
};

/// Where the result goes, any alignment; may be exactly one of the terms' memory.
struct Target {
  std::byte* data = nullptr;
  Form form = Form::kT;
};

/// target[i] = terms[0][i] (op) terms[1][i] (op) … for i in [0, count).
///
/// Numerics  As kernel::fold: left to right in the accumulation type; a sum stored as T is finished
///           (divided by `world` for kMean, rounded to nearest even, NaN made canonical), a single
///           T is copied bit for bit; NaN wins; -0 < +0 in min and max; integer sums wrap.
/// Errors    UsageError if `terms` is empty, world < 1, or `op` is kMean and dtype is no float.
void reference_fold(Dtype dtype,
                    ReduceOp op,
                    int world,
                    std::uint64_t count,
                    std::span<const Term> terms,
                    Target target);

/// The value of a 16-bit float; exact.
[[nodiscard]] float widen(BFloat16 value) noexcept;
[[nodiscard]] float widen(Float16 value) noexcept;
/// Rounds to nearest even; any NaN becomes the canonical quiet one.
[[nodiscard]] BFloat16 to_bfloat16(float value) noexcept;
[[nodiscard]] Float16 to_float16(float value) noexcept;

}  // namespace paceline::sim
