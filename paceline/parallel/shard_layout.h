// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Which rank updates which elements, and which of them are reduced together. No LibTorch.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/parallel/bucket_assignment.h"

namespace paceline {

/// Neighbouring elements of one parameter, in the order of its memory.
struct Stretch {
  std::size_t parameter = 0;
  Range elements;
  int owner = 0;             // the rank that updates them
  std::uint64_t offset = 0;  // in the owner's shard of the round
};

/// What one reduce-scatter averages: `stretches` one after the other are its logical buffer.
struct Round {
  Dtype dtype = Dtype::kF32;
  std::uint64_t count = 0;
  std::vector<Stretch> stretches;
};

/// Cuts buckets into rounds of at most `shard_bytes` (or one element) for each rank.
///
/// A bucket's elements belong to the ranks as if it were reduced whole, and a round takes an equal
/// slice of each rank's part: so every element's terms are added in the order in which an
/// all-reduce of the bucket adds them.
[[nodiscard]] std::vector<Round> make_rounds(std::span<const GradientShape> parameters,
                                             const BucketLayout& layout,
                                             const Communicator& comm,
                                             std::uint64_t shard_bytes);

}  // namespace paceline
