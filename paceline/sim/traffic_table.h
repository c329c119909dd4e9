// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Adds up what links carry; only links in use take memory. Private to sim.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "paceline/plan/schedule.h"
#include "paceline/sim/count.h"

namespace paceline::sim {

class TrafficTable {
 public:
  void add(int from, int to, std::uint64_t messages, std::uint64_t elements, std::uint64_t bytes);
  /// All that `step` of `rank` moves, once it is done.
  void add_step(const plan::Step& step, int rank, int world, Dtype dtype);
  /// The same without a kSend's: for those who count frames as they leave.
  void add_windows(const plan::Step& step, int rank, int world, Dtype dtype);
  /// Sorted by (from, to).
  [[nodiscard]] std::vector<LinkTraffic> links() const;

 private:
  std::unordered_map<std::uint64_t, LinkTraffic> links_;
};

}  // namespace paceline::sim
