// SPDX-License-Identifier: Apache-2.0
// What a reducer tells about itself.
#include <utility>

#include "paceline/parallel/reducer.h"

namespace paceline {

std::vector<BucketInfo> Reducer::buckets() const {
  std::vector<BucketInfo> result;
  for (const auto& bucket : buckets_) {
    BucketInfo info{
        .label = bucket.label(),
        .dtype = bucket.dtype(),
        .count = bucket.count(),
        .parameters = {},
        .algorithm = comm_.algorithm_for(Collective::kAllReduce, bucket.dtype(), bucket.count()),
        .formula_bytes_sent =
            comm_.formula_bytes_moved(Collective::kAllReduce, bucket.dtype(), bucket.count())};
    for (const std::size_t member : bucket.members()) {
      info.parameters.push_back(parameters_[member].name);
    }
    result.push_back(std::move(info));
  }
  return result;
}

void Reducer::count(std::size_t index, CopyReason reason) {
  const bool copied = reason != CopyReason::kNone;
  const std::uint64_t bytes = shapes_[index].bytes;
  ++(copied ? statistics_.gradients_copied : statistics_.gradients_in_place);
  (copied ? stats_.total.copied : stats_.total.in_place) += bytes;
  (copied ? step_bytes_.copied : step_bytes_.in_place) += bytes;
  switch (reason) {
    case CopyReason::kNone: break;
    case CopyReason::kBucketView: ++stats_.copies.bucket_view; break;
    case CopyReason::kSmall: ++stats_.copies.small; break;
    case CopyReason::kStrides: ++stats_.copies.strides; break;
    case CopyReason::kAliased: ++stats_.copies.aliased; break;
    case CopyReason::kOutside: ++stats_.copies.outside; break;
    case CopyReason::kExhausted: ++stats_.copies.exhausted; break;
  }
}

GradientStats Reducer::stats() const {
  GradientStats stats = stats_;
  stats.steps = statistics_.steps;
  if (!arena_) return stats;
  const BlockFigures blocks = arena_->figures();
  stats.arena = {.blocks = blocks.blocks,
                 .bytes = blocks.bytes,
                 .blocks_in_use = blocks.in_use,
                 .refused = blocks.refused};
  return stats;
}

DdpStatistics Reducer::statistics() const {
  DdpStatistics statistics = statistics_;
  const auto traffic = comm_.traffic();
  for (std::size_t b = 0; b < most_buckets_; ++b) {
    const auto found = traffic.find(label_of(b));
    if (found != traffic.end()) statistics.bytes_sent += found->second.payload_bytes_moved();
  }
  return statistics;
}

}  // namespace paceline
