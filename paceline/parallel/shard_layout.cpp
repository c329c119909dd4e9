// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/shard_layout.h"

#include <algorithm>

namespace paceline {
namespace {

/// A bucket's logical buffer: where each of its parameters begins.
class BucketMap {
 public:
  BucketMap(std::span<const GradientShape> parameters, const std::vector<std::size_t>& members)
      : members_(members) {
    for (const std::size_t member : members) {
      begins_.push_back(count_);
      count_ += parameters[member].bytes / size_of(parameters[member].dtype);
    }
    begins_.push_back(count_);
  }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// Adds what lies in `range` to the end of `owner`'s part of `round`.
  void append(Range range, int owner, Round& round) const {
    std::uint64_t offset = 0;
    auto next = std::upper_bound(begins_.begin(), begins_.end(), range.begin) - 1;
    for (std::uint64_t at = range.begin; at < range.end; ++next) {
      const std::uint64_t end = std::min(range.end, *(next + 1));
      if (end == at) continue;  // a parameter without elements
      const auto member = static_cast<std::size_t>(next - begins_.begin());
      round.stretches.push_back({.parameter = members_[member],
                                 .elements = {at - *next, end - *next},
                                 .owner = owner,
                                 .offset = offset});
      offset += end - at;
      at = end;
    }
    round.count += range.size();
  }

 private:
  const std::vector<std::size_t>& members_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t count_ = 0;
};

}  // namespace

std::vector<Round> make_rounds(std::span<const GradientShape> parameters,
                               const BucketLayout& layout,
                               const Communicator& comm,
                               std::uint64_t shard_bytes) {
  std::vector<Round> rounds;
  const int world = comm.world_size();
  for (const auto& members : layout) {
    const BucketMap map(parameters, members);
    const Dtype dtype = parameters[members.front()].dtype;
    const std::uint64_t each = std::max<std::uint64_t>(1, shard_bytes / size_of(dtype));
    const std::uint64_t longest = comm.shard_of(0, map.count()).size();
    for (std::uint64_t done = 0; done < longest; done += each) {
      Round round{.dtype = dtype, .stretches = {}};
      for (int rank = 0; rank < world; ++rank) {
        const Range part = comm.shard_of(rank, map.count());
        const std::uint64_t begin = std::min(part.begin + done, part.end);
        map.append({begin, std::min(begin + each, part.end)}, rank, round);
      }
      rounds.push_back(std::move(round));
    }
  }
  return rounds;
}

}  // namespace paceline
