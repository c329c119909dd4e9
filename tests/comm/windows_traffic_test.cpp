// SPDX-License-Identifier: Apache-2.0
// Collectives through shared memory: the bytes that formula and simulator say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "paceline/paceline.h"
#include "paceline/plan/cost.h"
#include "paceline/plan/schedule.h"
#include "paceline/sim/count.h"
#include "tests/comm/windows_support.h"
#include "tests/plan/menu.h"

namespace paceline {
namespace {

using test::kMostRanks;
using test::kShm;

/// What one call of `dish` moved, as each rank's ledger says: reads and writes of others' windows.
std::vector<sim::LinkTraffic> links_of(const std::vector<Ledger>& of_rank, std::size_t call) {
  std::map<std::pair<int, int>, sim::LinkTraffic> links;
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (const auto& [peer, traffic] : of_rank[r].calls.at(call).peers) {
      links[{rank, peer}].messages += traffic.messages_sent;
      links[{rank, peer}].bytes += traffic.payload_bytes_sent;
      links[{peer, rank}].bytes += traffic.payload_bytes_received;
      EXPECT_EQ(traffic.header_bytes_sent + traffic.header_bytes_received, 0U);
    }
  }
  std::vector<sim::LinkTraffic> list;
  for (auto& [ends, link] : links) {
    link.from = ends.first;
    link.to = ends.second;
    if (link.messages != 0 || link.bytes != 0) list.push_back(link);
  }
  return list;
}

Traffic sum_of(const CallRecord& call) {
  Traffic sum;
  for (const PeerTraffic& with : call.peers) sum += with.traffic;
  return sum;
}

/// One call of `shape`, of floats in private memory.
void run(Communicator& comm, Algorithm algorithm, plan::Shape shape) {
  shape.rank = comm.rank();
  const plan::Schedule schedule = plan::make_schedule(algorithm, shape);
  std::vector<float> in(schedule.in.size());
  std::vector<float> out(schedule.out.size());
  const Piece from{reinterpret_cast<std::byte*>(in.data()), in.size() * sizeof(float)};
  const Piece to{reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(float)};
  comm.engine()
      .start({.what = shape.what, .root = shape.root, .count = shape.count, .algorithm = algorithm},
             {Dtype::kF32, in.size(), {&from, 1}}, {Dtype::kF32, out.size(), {&to, 1}})
      .wait();
}

TEST(OverWindows, count_what_formula_and_simulator_say) {
  for (int world = 2; world <= std::min(6, kMostRanks); ++world) {
    std::vector<std::pair<Algorithm, plan::Shape>> cases;
    for (const plan::Dish& dish : plan::menu()) {
      for (const std::uint64_t count : {0U, 1U, 1003U, 200'000U}) {
        if (!dish.windows || (dish.what == Collective::kBarrier && count != 0)) continue;
        cases.emplace_back(dish.algorithm,
                           plan::Shape{.what = dish.what,
                                       .world = world,
                                       .root = dish.what == Collective::kBroadcast ? world / 2 : 0,
                                       .count = count,
                                       .windows = true,
                                       .slices = plan::slices_for(Dtype::kF32, world, count)});
      }
    }
    std::vector<Ledger> of_rank(static_cast<std::size_t>(world));
    spawn_ranks(
        world,
        [&](Communicator& comm) {
          comm.start_ledger();
          for (const auto& [algorithm, shape] : cases) run(comm, algorithm, shape);
          of_rank[static_cast<std::size_t>(comm.rank())] = comm.take_ledger();
        },
        kShm);
    for (std::size_t c = 0; c < cases.size(); ++c) {
      auto [algorithm, shape] = cases[c];
      SCOPED_TRACE(::testing::Message() << name_of(algorithm) << ' ' << name_of(shape.what) << ' '
                                        << shape.count << " over " << world);
      auto simulated = sim::count(algorithm, shape, Dtype::kF32);
      for (auto& link : simulated) link.elements = 0;  // which ledgers do not count
      EXPECT_TRUE(links_of(of_rank, c) == simulated);
      for (shape.rank = 0; shape.rank < world; ++shape.rank) {
        const Traffic sum = sum_of(of_rank[static_cast<std::size_t>(shape.rank)].calls[c]);
        EXPECT_EQ(sum.payload_bytes_sent, plan::formula_bytes_sent(algorithm, shape, Dtype::kF32));
        EXPECT_EQ(sum.payload_bytes_received,
                  plan::formula_bytes_read(algorithm, shape, Dtype::kF32));
      }
    }
  }
}

}  // namespace
}  // namespace paceline
