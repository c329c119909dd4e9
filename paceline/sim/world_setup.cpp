// SPDX-License-Identifier: Apache-2.0
// How a World begins: memory, lanes, scripts, and who may move.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/sim/check.h"
#include "paceline/sim/world.h"

namespace paceline::sim {

using plan::Kind;
using plan::Step;

World::World(int world, std::vector<Call> calls, const WorldOptions& options)
    : world_(world), calls_(std::move(calls)), options_(options), random_(options.seed) {
  if (world < 1) throw UsageError(fmt::format("a world needs at least 1 rank, not {}", world));
  const auto ranks = static_cast<std::size_t>(world);
  rank_calls_.resize(ranks);
  links_.resize(ranks * ranks);
  words_.resize(ranks * ranks);
  scripts_.resize(ranks);
  script_next_.resize(ranks);
  traffic_.resize(calls_.size());
  for (const Call& call : calls_) arithmetic_.emplace_back(call.dtype, call.op, world);
  for (std::size_t call = 0; call < calls_.size(); ++call) {
    std::vector<plan::Schedule> schedules;
    for (int rank = 0; rank < world; ++rank) {
      make_rank_call(rank, call);
      schedules.push_back(at(rank, call).schedule);
    }
    check_matching(schedules);
  }
  for (int rank = 0; rank < world; ++rank) make_script(rank);
  make_actors();
}

void World::make_rank_call(int rank, std::size_t call) {
  const Call& what = calls_[call];
  const plan::Shape shape{
      .what = what.what,
      .rank = rank,
      .world = world_,
      .root = what.root,
      .count = what.count,
      .local = world_,
      .windows = what.windows,
      .resident = what.resident.empty() || what.resident[static_cast<std::size_t>(rank)],
      .slices = what.slices};
  RankCall c;
  c.schedule = what.plan ? what.plan(shape) : plan::make_schedule(what.algorithm, shape);
  Layout layout{.in_place = random_.flip(), .sum_over_out = random_.flip(), .cuts = {}};
  for (std::uint64_t i = random_.below(5); i > 0; --i) {
    layout.cuts.push_back(random_.below(what.count + 1));
  }
  std::sort(layout.cuts.begin(), layout.cuts.end());
  layout.cuts.erase(std::unique(layout.cuts.begin(), layout.cuts.end()), layout.cuts.end());
  c.memory = std::make_unique<CallMemory>(c.schedule, shape, what.dtype, layout);
  c.blockers = blockers_of(c.schedule, rank, world_, options_.rules);
  c.left = c.schedule.steps.size();
  make_lanes(rank, c);
  rank_calls_[static_cast<std::size_t>(rank)].push_back(std::move(c));
}

void World::make_lanes(int rank, RankCall& c) {
  const auto ranks = static_cast<std::size_t>(world_);
  c.progress.resize(c.left);
  c.out.resize(ranks);
  c.in.resize(ranks);
  std::vector<std::uint16_t> sent(ranks);
  std::vector<std::uint16_t> received(ranks);
  for (std::uint32_t i = 0; i < c.schedule.steps.size(); ++i) {
    const Step& step = c.schedule.steps[i];
    c.progress[i].at = step.elements.begin;
    if (step.kind == Kind::kSend) {
      c.progress[i].message = sent[step.peer]++;
      c.out[step.peer].steps.push_back(i);
    } else if (step.kind == Kind::kRecv) {
      c.progress[i].message = received[step.peer]++;
      c.in[step.peer].steps.push_back(i);
    } else if (step.kind == Kind::kPost && options_.flags_as_frames) {
      flags_travel_ = true;
      for (int k = 0; k < step.to.size; ++k) {
        const int reader = (step.to.first + k) % world_;
        if (reader != rank) c.out[static_cast<std::size_t>(reader)].steps.push_back(i);
      }
    }
  }
  if (options_.rules.messages_in_program_order) return;
  for (Lane& lane : c.out) std::reverse(lane.steps.begin(), lane.steps.end());
}

// Issues in sequence; waits come in between, later, in any order.
void World::make_script(int rank) {
  auto& script = scripts_[static_cast<std::size_t>(rank)];
  std::vector<std::size_t> open;
  const auto wait_for_one = [&] {
    const auto i = static_cast<std::ptrdiff_t>(random_.below(open.size()));
    script.push_back({.wait = true, .call = open[static_cast<std::size_t>(i)]});
    open.erase(open.begin() + i);
  };
  for (std::size_t call = 0; call < calls_.size(); ++call) {
    script.push_back({.wait = false, .call = call});
    open.push_back(call);
    while (!open.empty() && random_.below(3) == 0) wait_for_one();
  }
  while (!open.empty()) wait_for_one();
}

void World::make_actors() {
  for (int rank = 0; rank < world_; ++rank) {
    if (!calls_.empty()) actors_.push_back({Role::kScript, rank, 0, 0});
    for (std::size_t call = 0; call < calls_.size(); ++call) {
      const RankCall& c = at(rank, call);
      for (std::uint32_t i = 0; i < c.schedule.steps.size(); ++i) {
        const Kind kind = c.schedule.steps[i].kind;
        if (kind != Kind::kSend && kind != Kind::kRecv) {
          actors_.push_back({Role::kLocal, rank, call, i});
        }
      }
      for (std::uint32_t p = 0; p < c.out.size(); ++p) {
        if (!c.out[p].finished()) actors_.push_back({Role::kOut, rank, call, p});
        if (!c.in[p].finished()) actors_.push_back({Role::kIn, rank, call, p});
      }
    }
    for (int p = 0; p < world_ && flags_travel_; ++p) {
      actors_.push_back({Role::kFlags, rank, 0, static_cast<std::uint32_t>(p)});
    }
  }
  if (options_.choice == Choice::kRandom) return;
  std::stable_sort(actors_.begin(), actors_.end(),
                   [this](const Actor& a, const Actor& b) { return priority(a) < priority(b); });
}

std::uint64_t World::priority(const Actor& actor) const {
  std::uint64_t key = options_.seed * 1009 + static_cast<std::uint64_t>(actor.rank);
  if (options_.choice != Choice::kStarveRanks) key = key * 1013 + actor.call;
  if (options_.choice == Choice::kStarveLanes) {
    key = key * 1019 + static_cast<std::uint64_t>(actor.role);
    key = key * 1021 + actor.index;
  }
  return Random(key).next();
}

}  // namespace paceline::sim
