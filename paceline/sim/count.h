// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What a collective moves over each link, counted from its schedules without moving any data.

#include <cstdint>
#include <vector>

#include "paceline/plan/schedule.h"

namespace paceline::sim {

/// What one directed link carried, payload only.
struct LinkTraffic {
  int from = 0;
  int to = 0;
  std::uint64_t messages = 0;  ///< kSend and kPost; elements read or written in windows have none
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  bool operator==(const LinkTraffic&) const = default;
};

/// The links that `algorithm` uses, in the order of (from, to). shape.rank is ignored.
///
/// Cost    O(steps of all ranks) time, one rank's schedule at a time in memory: a ring of 1,024
///         ranks (4 million steps) in under 2 s.
/// Errors  UsageError as plan::make_schedule.
[[nodiscard]] std::vector<LinkTraffic> count(Algorithm algorithm,
                                             const plan::Shape& shape,
                                             Dtype dtype);

}  // namespace paceline::sim
