// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "apps/compare/team.h"

namespace paceline::apps {
namespace {

constexpr std::int64_t kStepsPerTurn = 5;

class Run {
 public:
  Run(const CompareOptions& options, const std::function<void(const Standing&)>& progress)
      : options_(options),
        progress_(progress),
        contestants_(contestants_for(options.ranks)),
        rounds_((options.steps + kStepsPerTurn - 1) / kStepsPerTurn),
        place_(make_meeting_place("compare")) {}

  std::vector<Measurement> measure() {
    for (const Contestant& contestant : contestants_) start(contestant);
    for (std::int64_t round = 0; round < rounds_; ++round) {
      for (std::size_t i = 0; i < teams_.size(); ++i) {
        take_turn(*teams_[round % 2 == 0 ? i : teams_.size() - 1 - i], round);
      }
    }
    std::vector<Measurement> all;
    for (auto& team : teams_) {
      Measurement one{.contestant = team->contestant(), .count = team->count(), .processes = {}};
      one.processes = team->finish();
      all.push_back(std::move(one));
    }
    return all;
  }

 private:
  void start(const Contestant& contestant) {
    tell(fmt::format("{} starts", title_of(contestant)));
    const int number = static_cast<int>(teams_.size());
    teams_.push_back(std::make_unique<Team>(settings_for(options_, contestant), place_, number));
    teams_.back()->run(kWarmUpSteps);
    teams_.back()->start_recording();
    ++turn_;
  }

  void take_turn(Team& team, std::int64_t round) {
    const std::int64_t first = round * kStepsPerTurn;
    const std::int64_t steps = std::min(kStepsPerTurn, options_.steps - first);
    const double loss = team.run(steps);
    ++turn_;
    tell(fmt::format("{}, step {} of {}: loss {:.4f}", title_of(team.contestant()), first + steps,
                     options_.steps, loss));
  }

  void tell(const std::string& what) const {
    const auto teams = static_cast<std::int64_t>(contestants_.size());
    progress_({.turn = turn_, .turns = teams * (rounds_ + 1), .what = what});
  }

  const CompareOptions& options_;
  const std::function<void(const Standing&)>& progress_;
  const std::vector<Contestant> contestants_;
  const std::int64_t rounds_;
  const MeetingPlace place_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::int64_t turn_ = 0;
};

}  // namespace

TrainingSettings settings_for(const CompareOptions& options, const Contestant& contestant) {
  return {.contestant = contestant,
          .model = options.model,
          .batch_size = options.batch_size,
          .learning_rate = options.learning_rate,
          .seed = options.seed,
          .algorithm = options.algorithm,
          .data = options.data,
          .text = options.text};
}

std::vector<Measurement> train_all(const CompareOptions& options,
                                   const std::function<void(const Standing&)>& progress) {
  return Run(options, progress).measure();
}

}  // namespace paceline::apps
