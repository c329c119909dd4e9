// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Whether a gradient can be averaged where backward left it.

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "paceline/parallel/gradient_arena.h"

namespace paceline {

/// Why a gradient was copied on its way out.
enum class CopyReason : std::uint8_t {
  kNone,        ///< it was not: it lay where the links reach it
  kBucketView,  ///< no arena: all are
  kSmall,       ///< too small for a block of its own
  kStrides,     ///< its elements are not in its parameter's order
  kAliased,     ///< somebody else reads its memory, or it is part of a graph
  kOutside,     ///< it does not lie in the arena
  kExhausted    ///< there was no block for it
};

/// Whether the memory of `gradient` holds its values in the order of `parameter`'s memory, or row
/// by row if that is not dense.
[[nodiscard]] bool lies_like(const at::Tensor& gradient, const at::Tensor& parameter);

/// What keeps `gradient` from being averaged in place.
///
/// `passing` is what autograd still holds in the hook: the gradient that it accumulated, whose
/// memory may have become `gradient`'s. Undefined once backward has ended.
[[nodiscard]] CopyReason obstacle_of(const at::Tensor& gradient,
                                     const at::Tensor& parameter,
                                     const at::Tensor& passing,
                                     const GradientArena& arena);

/// Copies `gradient`'s values, bit by bit, to `home`, which is made by tensor_over(parameter).
void copy_bits(const at::Tensor& home, const at::Tensor& gradient, const at::Tensor& parameter);

}  // namespace paceline
