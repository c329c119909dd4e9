// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/count.h"

#include <algorithm>
#include <tuple>

#include "paceline/plan/cost.h"
#include "paceline/sim/traffic_table.h"

namespace paceline::sim {

void TrafficTable::add(
    int from, int to, std::uint64_t messages, std::uint64_t elements, std::uint64_t bytes) {
  const auto key = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  LinkTraffic& link = links_.try_emplace(key, LinkTraffic{.from = from, .to = to}).first->second;
  link.messages += messages;
  link.elements += elements;
  link.bytes += bytes;
}

void TrafficTable::add_windows(const plan::Step& step, int rank, int world, Dtype dtype) {
  if (step.kind == plan::Kind::kSend) return;
  for (int i = 0; i < step.to.size && step.kind == plan::Kind::kPost; ++i) {
    const int reader = (step.to.first + i) % world;
    if (reader != rank) add(rank, reader, 1, 0, 0);
  }
  plan::for_each_transfer(step, rank, world, dtype, [&](int from, int to, std::uint64_t bytes) {
    add(from, to, 0, step.elements.size(), bytes);
  });
}

void TrafficTable::add_step(const plan::Step& step, int rank, int world, Dtype dtype) {
  add_windows(step, rank, world, dtype);
  if (step.kind != plan::Kind::kSend) return;
  plan::for_each_transfer(step, rank, world, dtype, [&](int from, int to, std::uint64_t bytes) {
    add(from, to, 1, step.elements.size(), bytes);
  });
}

std::vector<LinkTraffic> TrafficTable::links() const {
  std::vector<LinkTraffic> sorted;
  sorted.reserve(links_.size());
  for (const auto& [key, link] : links_) sorted.push_back(link);
  std::sort(sorted.begin(), sorted.end(), [](const LinkTraffic& a, const LinkTraffic& b) {
    return std::tie(a.from, a.to) < std::tie(b.from, b.to);
  });
  return sorted;
}

std::vector<LinkTraffic> count(Algorithm algorithm, const plan::Shape& shape, Dtype dtype) {
  TrafficTable table;
  plan::Shape one = shape;
  for (one.rank = 0; one.rank < std::max(1, shape.world); ++one.rank) {
    for (const plan::Step& step : plan::make_schedule(algorithm, one).steps) {
      table.add_step(step, one.rank, one.world, dtype);
    }
  }
  return table.links();
}

}  // namespace paceline::sim
