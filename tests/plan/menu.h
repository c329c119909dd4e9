// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Every (algorithm, collective) that has a schedule, and the counts that tests go through.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "paceline/plan/schedule.h"

namespace paceline::plan {

struct Dish {
  Algorithm algorithm;
  Collective what;
};

inline std::vector<Dish> menu() {
  std::vector<Dish> dishes;
  for (auto algorithm : {Algorithm::kRing, Algorithm::kPairwise, Algorithm::kOneStage,
                         Algorithm::kTree, Algorithm::kRelay}) {
    for (auto what : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                      Collective::kBroadcast}) {
      if (supports(algorithm, what)) dishes.push_back({algorithm, what});
    }
  }
  dishes.push_back({Algorithm::kTree, Collective::kBarrier});
  return dishes;
}

/// {0, 1, N-1, N, N+1, 7N+3, 1000} without repeats.
inline std::vector<std::uint64_t> odd_counts(int world) {
  const auto n = static_cast<std::uint64_t>(world);
  std::vector<std::uint64_t> counts{0, 1, n - 1, n, n + 1, 7 * n + 3, 1000};
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

/// The schedules of all ranks.
inline std::vector<Schedule> all_ranks(Algorithm algorithm, Shape shape) {
  std::vector<Schedule> schedules;
  for (shape.rank = 0; shape.rank < shape.world; ++shape.rank) {
    schedules.push_back(make_schedule(algorithm, shape));
  }
  return schedules;
}

}  // namespace paceline::plan
