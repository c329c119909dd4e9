// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Elementwise reductions on flat memory. Plain pointers in, plain pointers out; no Highway in sight.

#include <cstddef>
#include <cstdint>
#include <span>

#include "paceline/base/types.h"

namespace paceline::kernel {

/// One operand of a fold: `count` elements at `data`, any alignment.
struct Term {
  const std::byte* data = nullptr;
  Form form = Form::kT;
};

/// Where a fold's result goes, any alignment. May be exactly one of the terms' memory (same address,
/// same element size); it must not overlap a term in any other way.
struct Target {
  std::byte* data = nullptr;
  Form form = Form::kT;
};

/// target[i] = terms[0][i] (op) terms[1][i] (op) … for i in [0, count).
///
/// Numerics  Left to right, in accumulation_type(dtype); kMean adds. A target in Form::kSum is left
///           as it is. A target in Form::kT is finished if it is a sum, that is, if there are two or
///           more terms or the only term is in Form::kSum: divided by `world` for kMean (a true
///           division, in the accumulation type), rounded to nearest even for 16-bit floats, any NaN
///           made the canonical quiet NaN (sign 0, only the top mantissa bit set). A single kT term
///           into a kT target is copied bit for bit; into a kSum target it is widened exactly.
///           NaN wins in sum, min and max; -0 < +0 in min and max; integer sums wrap. The same bits
///           on every SIMD target, for every alignment and every split of the range.
/// Cost      One pass over each term and the target; blocks of a few KiB stay in the first-level cache.
/// Errors    UsageError if `terms` is empty, world < 1, or `op` is kMean and dtype is no float.
/// Threads   Safe: no shared state.
void fold(Dtype dtype, ReduceOp op, int world, std::uint64_t count, std::span<const Term> terms,
          Target target);

/// Name of the SIMD target in use, e.g. "AVX2".
[[nodiscard]] const char* target_name();

}  // namespace paceline::kernel
