// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/bucket_assignment.h"

#include <algorithm>
#include <map>
#include <utility>

#include "paceline/base/error.h"

namespace paceline {
namespace {

struct OpenBucket {
  std::vector<std::size_t> members;
  std::uint64_t bytes = 0;
  std::size_t complete_at = 0;  // place of the last member in the order
};

void require_permutation(std::span<const std::size_t> order, std::size_t size) {
  std::vector<bool> seen(size, false);
  bool good = order.size() == size;
  for (const std::size_t index : order) {
    good = good && index < size && !seen[index];
    if (good) seen[index] = true;
  }
  if (!good) throw UsageError("assign_buckets: the order is no permutation of the gradients");
}

}  // namespace

BucketLayout assign_buckets(std::span<const GradientShape> gradients,
                            std::span<const std::size_t> order,
                            BucketCaps caps) {
  if (caps.first_bytes == 0 || caps.bytes == 0) {
    throw UsageError("assign_buckets: a bucket size of 0 bytes");
  }
  require_permutation(order, gradients.size());
  struct OfType {
    OpenBucket open;
    std::uint64_t cap;
  };
  std::map<Dtype, OfType> types;
  std::vector<OpenBucket> buckets;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const GradientShape& gradient = gradients[order[place]];
    auto& type = types.try_emplace(gradient.dtype, OfType{{}, caps.first_bytes}).first->second;
    type.open.members.push_back(order[place]);
    type.open.bytes += gradient.bytes;
    type.open.complete_at = place;
    if (type.open.bytes < type.cap) continue;
    buckets.push_back(std::exchange(type.open, {}));
    type.cap = caps.bytes;
  }
  for (auto& [dtype, type] : types) {
    if (!type.open.members.empty()) buckets.push_back(std::move(type.open));
  }
  std::sort(buckets.begin(), buckets.end(),
            [](const OpenBucket& a, const OpenBucket& b) { return a.complete_at < b.complete_at; });
  BucketLayout layout;
  for (auto& bucket : buckets) layout.push_back(std::move(bucket.members));
  return layout;
}

}  // namespace paceline
