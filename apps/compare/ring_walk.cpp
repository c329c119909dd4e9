// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/ring_walk.h"

#include <stdexcept>

#include "paceline/plan/schedule.h"

namespace paceline::apps {
namespace {

int chunk_of(const std::vector<Range>& chunks, const Range& elements, int rank, std::size_t step) {
  const int world = static_cast<int>(chunks.size());
  // Empty chunks look alike: the ring's order tells which one it is.
  const int due =
      static_cast<int>((static_cast<std::size_t>(rank + 2 * world) - step - 1) % chunks.size());
  if (chunks[static_cast<std::size_t>(due)] != elements) {
    throw std::logic_error("the ring's schedule does not send what the ring's order says");
  }
  return due;
}

}  // namespace

RingWalk walk_ring(const BucketFacts& bucket, int ranks) {
  RingWalk walk{.ranks = ranks, .bucket = bucket, .chunks = {}, .steps = {}};
  for (int c = 0; c < ranks; ++c) walk.chunks.push_back(plan::chunk(bucket.count, ranks, c));
  for (int rank = 0; rank < ranks; ++rank) {
    std::size_t step = 0;
    const plan::Schedule schedule = plan::make_schedule(
        Algorithm::kRing, {.rank = rank, .world = ranks, .count = bucket.count});
    for (const plan::Step& one : schedule.steps) {
      if (one.kind != plan::Kind::kSend) continue;
      if (walk.steps.size() <= step) walk.steps.emplace_back();
      walk.steps[step].push_back({.from = rank,
                                  .to = one.peer,
                                  .chunk = chunk_of(walk.chunks, one.elements, rank, step),
                                  .elements = one.elements});
      ++step;
    }
  }
  return walk;
}

}  // namespace paceline::apps
