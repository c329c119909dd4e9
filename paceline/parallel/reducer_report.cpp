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
            comm_.formula_bytes_sent(Collective::kAllReduce, bucket.dtype(), bucket.count())};
    for (const std::size_t member : bucket.members()) {
      info.parameters.push_back(parameters_[member].name);
    }
    result.push_back(std::move(info));
  }
  return result;
}

DdpStatistics Reducer::statistics() const {
  DdpStatistics statistics = statistics_;
  const auto traffic = comm_.traffic();
  for (std::size_t b = 0; b < most_buckets_; ++b) {
    const auto found = traffic.find(label_of(b));
    if (found != traffic.end()) statistics.bytes_sent += found->second.payload_bytes_sent;
  }
  return statistics;
}

}  // namespace paceline
