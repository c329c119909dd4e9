// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A ring all-reduce, step by step: who sends which slice to whom, read off the real schedule.

#include <cstdint>
#include <string>
#include <vector>

#include "apps/compare/record.h"

namespace paceline::apps {

struct RingSend {
  int from = 0;
  int to = 0;
  int chunk = 0;
  Range elements = {};
};

struct RingWalk {
  int ranks = 0;
  BucketFacts bucket = {};
  std::vector<Range> chunks = {};
  /// The first N-1 add up, the others pass the sums on: 2(N-1) in all.
  std::vector<std::vector<RingSend>> steps = {};
};

/// How `bucket` goes round a ring of `ranks`.
[[nodiscard]] RingWalk walk_ring(const BucketFacts& bucket, int ranks);

}  // namespace paceline::apps
