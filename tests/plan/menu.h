// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Every (algorithm, collective) that has a schedule, and the counts that tests go through.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "paceline/plan/cost.h"
#include "paceline/plan/schedule.h"

namespace paceline::plan {

struct Dish {
  Algorithm algorithm;
  Collective what;
  bool windows = false;
};

inline std::vector<Dish> menu() {
  std::vector<Dish> dishes;
  for (auto algorithm : {Algorithm::kRing, Algorithm::kPairwise, Algorithm::kOneStage,
                         Algorithm::kTree, Algorithm::kRelay, Algorithm::kDirect}) {
    for (auto what : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                      Collective::kBroadcast}) {
      if (supports(algorithm, what)) {
        dishes.push_back({algorithm, what, algorithm == Algorithm::kDirect});
      }
    }
  }
  dishes.push_back({Algorithm::kTree, Collective::kBarrier});
  dishes.push_back({Algorithm::kOneStage, Collective::kAllReduce, true});
  dishes.push_back({Algorithm::kDirect, Collective::kBarrier, true});
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

/// The column "messages sent by rank r" of docs/algorithms.md.
inline std::uint64_t documented_messages(const Dish& dish, const Shape& shape) {
  const auto peers = static_cast<std::uint64_t>(shape.world - 1);
  if (shape.world == 1) return 0;
  if (dish.windows) {  // posts
    const bool once = dish.what == Collective::kBarrier || dish.algorithm == Algorithm::kOneStage;
    if (once) return peers;
    if (dish.what != Collective::kBroadcast) return 2 * peers * shape.slices;
    return shape.slices * (shape.rank == shape.root ? peers : 1);
  }
  if (dish.what == Collective::kBarrier) return static_cast<std::uint64_t>(std::bit_width(peers));
  if (dish.algorithm == Algorithm::kRelay) return shape.rank == 0 ? peers : 1;
  if (dish.what == Collective::kBroadcast) {  // a byte for each child
    Shape byte = shape;
    byte.count = 1;
    return formula_bytes_sent(dish.algorithm, byte, Dtype::kU8);
  }
  const bool twice = dish.what == Collective::kAllReduce && dish.algorithm != Algorithm::kOneStage;
  return (twice ? 2 : 1) * peers;
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
