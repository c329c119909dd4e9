// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Which gradients travel together: a pure function, without LibTorch.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "paceline/base/types.h"

namespace paceline {

struct GradientShape {
  Dtype dtype = Dtype::kF32;
  std::uint64_t bytes = 0;
};

struct BucketCaps {
  std::uint64_t first_bytes = 0;  ///< of the first bucket of each type
  std::uint64_t bytes = 0;        ///< of all others
};

/// Indices into the gradients, per bucket, in launch order.
using BucketLayout = std::vector<std::vector<std::size_t>>;

/// Walks the gradients in `order`, the order in which they are expected, and adds each to the open
/// bucket of its type; a bucket whose bytes reach its cap is closed. A gradient is never split, so
/// a bucket may overshoot. Buckets are launched in the order in which they are complete.
///
/// Errors  UsageError if `order` is no permutation of the gradients, or a cap is 0.
[[nodiscard]] BucketLayout assign_buckets(std::span<const GradientShape> gradients,
                                          std::span<const std::size_t> order,
                                          BucketCaps caps);

}  // namespace paceline
