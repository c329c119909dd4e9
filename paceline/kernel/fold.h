// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Elementwise reductions on flat memory. Plain pointers in, plain pointers out; no Highway in
/// sight.

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

/// Where a fold's result goes, any alignment. May be exactly one of the terms' memory (same
/// address, same element size), unless the result is added to it; it must not overlap a term in any
/// other way, nor another target.
struct Target {
  std::byte* data = nullptr;
  Form form = Form::kT;
};

/// target[i] = terms[0][i] (op) terms[1][i] (op) … for i in [0, count), for each of `targets`. All
/// terms of an element are read before it is stored.
///
/// Numerics  Left to right, in accumulation_type(dtype); kMean adds. A target in Form::kSum holds
///           the partial result, neither divided nor rounded. A target in Form::kT is finished if
///           there are two or more terms or the only term is in Form::kSum: divided by `world` for
///           kMean (a true division, in the accumulation type; by a power of two it is a product
///           with the same bits), rounded to nearest even for 16-bit
///           floats. A single kT term into kT, or kSum into kSum, is copied bit for bit; kT into
///           kSum is widened exactly. NaN wins in sum, min and max. What is finished, and what two
///           or more terms give in either form, has only the canonical quiet NaN (sign 0, only the
///           top mantissa bit set), for min and max too. -0 < +0 in min and max; integer sums
///           wrap. The same bits in each target, on every SIMD target, for every alignment and
///           every split of the range.
///           With `adds` each result, finished as one in Form::kT is, is scaled and added to the
///           target, which keeps the bits of that sum: a NaN there need not be the canonical one.
/// Cost      One pass over each term and each target, which with `adds` is read too. Up to 8 terms
///           are summed in registers, more in groups of 8 whose partial sums stay in the first-level
///           cache, a few KiB at a time. 16-bit floats with a form of kSum among three or more terms
///           or two or more targets go through that cache pair by pair.
/// Errors    UsageError if `terms` or `targets` is empty, targets differ in form, world < 1, `op`
///           is kMean and dtype is no float; with `adds` if dtype is neither F32 nor F64, there is
///           one term, or another target than one in Form::kT.
/// Threads   Safe: no shared state.
void fold(Dtype dtype,
          ReduceOp op,
          int world,
          std::uint64_t count,
          std::span<const Term> terms,
          std::span<const Target> targets,
          const ScaledAdd* adds = nullptr);

/// Name of the SIMD target in use, e.g. "AVX2".
[[nodiscard]] const char* target_name();

}  // namespace paceline::kernel
