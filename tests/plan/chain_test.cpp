// SPDX-License-Identifier: Apache-2.0
// How many messages each rank sends, and how many must follow one another: the columns of
// docs/algorithms.md.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <tuple>

#include "paceline/sim/conflicts.h"
#include "tests/plan/menu.h"

namespace paceline::plan {
namespace {

/// Finds the longest chain of messages: the depth of a step is the most messages that had to arrive
/// before it can be done.
class Chain {
 public:
  explicit Chain(const std::vector<Schedule>& schedules) : schedules_(schedules) {
    const int world = static_cast<int>(schedules.size());
    for (int rank = 0; rank < world; ++rank) {
      blockers_.push_back(
          sim::blockers_of(schedules[static_cast<std::size_t>(rank)], rank, world, {}));
      depths_.emplace_back(blockers_.back().size());
    }
    while (relax()) continue;
  }

  [[nodiscard]] int longest() const {
    int most = 0;
    for (const auto& depths : depths_) {
      for (int depth : depths) most = std::max(most, depth);
    }
    return most;
  }

 private:
  using Key = std::tuple<std::size_t, std::size_t, std::size_t>;  // from, to, number or flag

  bool relax() {
    bool changed = false;
    std::map<Key, int> arrives;  // kept over both kinds: a schedule here has only one of them
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) departures(rank, arrives);
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      changed |= settle(rank, arrives);
    }
    return changed;
  }

  void departures(std::size_t rank, std::map<Key, int>& arrives) const {
    std::map<std::size_t, std::size_t> sent;
    for (std::size_t i = 0; i < depths_[rank].size(); ++i) {
      const Step& step = schedules_[rank].steps[i];
      const int depth = depths_[rank][i] + 1;
      if (step.kind == Kind::kSend) arrives[{rank, step.peer, sent[step.peer]++}] = depth;
      for (const std::size_t to : members(step, Kind::kPost, step.to)) {
        arrives[{rank, to, step.flag}] = depth;
      }
    }
  }

  // The ranks that a step of `kind` names.
  [[nodiscard]] std::vector<std::size_t> members(const Step& step, Kind kind, Ranks ranks) const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < ranks.size && step.kind == kind; ++i) {
      all.push_back((ranks.first + i) % schedules_.size());
    }
    return all;
  }

  bool settle(std::size_t rank, const std::map<Key, int>& arrives) {
    bool changed = false;
    std::map<std::size_t, std::size_t> received;
    for (std::size_t i = 0; i < depths_[rank].size(); ++i) {
      const Step& step = schedules_[rank].steps[i];
      int depth = 0;
      for (std::uint32_t earlier : blockers_[rank][i]) {
        depth = std::max(depth, depths_[rank][earlier]);
      }
      if (step.kind == Kind::kRecv) {
        depth = std::max(depth, arrives.at({step.peer, rank, received[step.peer]++}));
      }
      for (const std::size_t from : members(step, Kind::kAwait, step.from)) {
        depth = std::max(depth, arrives.at({from, rank, step.flag}));
      }
      changed |= depth != depths_[rank][i];
      depths_[rank][i] = depth;
    }
    return changed;
  }

  const std::vector<Schedule>& schedules_;
  std::vector<std::vector<std::vector<std::uint32_t>>> blockers_;
  std::vector<std::vector<int>> depths_;
};

std::uint64_t messages_sent(const Schedule& schedule) {
  std::uint64_t messages = 0;
  for (const Step& step : schedule.steps) {
    if (step.kind == Kind::kSend) ++messages;
    if (step.kind == Kind::kPost) messages += step.to.size;
  }
  return messages;
}

int floor_log2(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1; }
int ceil_log2(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1))); }

/// The column "chain" of docs/algorithms.md.
int chain_of(const Dish& dish, int world) {
  const bool both = dish.what == Collective::kAllReduce;
  if (dish.algorithm == Algorithm::kDirect) return dish.what == Collective::kBarrier ? 1 : 2;
  switch (dish.what) {
    case Collective::kBroadcast: return floor_log2(world);
    case Collective::kBarrier: return ceil_log2(world);
    default: break;
  }
  switch (dish.algorithm) {
    case Algorithm::kRing: return (both ? 2 : 1) * (world - 1);
    case Algorithm::kPairwise: return both ? 2 : 1;
    case Algorithm::kOneStage: return 1;
    case Algorithm::kRelay: return 2;
    case Algorithm::kTree:
    case Algorithm::kDirect: break;
  }
  return 0;
}

TEST(Chain, is_as_long_as_the_documentation_says) {
  for (int world = 2; world <= 17; ++world) {
    for (const Dish& dish : menu()) {
      // A full buffer: an empty chunk has no dependencies, so its chain may be shorter.
      const Shape shape{.what = dish.what,
                        .world = world,
                        .root = world / 2,
                        .count = 1000,
                        .windows = dish.windows};
      EXPECT_EQ(Chain(all_ranks(dish.algorithm, shape)).longest(), chain_of(dish, world))
          << name_of(dish.algorithm) << ' ' << name_of(dish.what) << " over " << world;
    }
  }
}

TEST(Messages, are_as_many_as_the_documentation_says_for_any_count) {
  for (int world = 2; world <= 17; ++world) {
    for (std::uint64_t count : odd_counts(world)) {
      for (const Dish& dish : menu()) {
        Shape shape{.what = dish.what, .world = world, .count = count, .windows = dish.windows};
        for (shape.rank = 0; shape.rank < world; ++shape.rank) {
          EXPECT_EQ(messages_sent(make_schedule(dish.algorithm, shape)),
                    documented_messages(dish, shape));
        }
      }
    }
  }
}

}  // namespace
}  // namespace paceline::plan
