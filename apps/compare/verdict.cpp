// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "apps/compare/words.h"
#include "paceline/net/host.h"

namespace paceline::apps {
namespace {

constexpr double kDraw = 1.03;  // closer than this, another run may say the opposite

const RunResult& fastest(const Comparison& comparison) {
  return *std::ranges::min_element(comparison.runs, {},
                                   [](const RunResult& run) { return run.step_ms.median; });
}

std::string ratio_to(const RunResult& winner, const RunResult& other) {
  const double ratio = other.step_ms.median / winner.step_ms.median;
  return fmt::format("{:.2f} times as fast as {}{}", ratio, title_of(other.contestant),
                     ratio < kDraw ? " (a draw)" : "");
}

std::string why_dp_or_ddp(const RunResult& winner, const Comparison& comparison) {
  const RunResult& dp = *find_run(comparison, Mechanism::kDp);
  const RunResult& ddp = *find_run(comparison, Mechanism::kDdp);
  const Communication dp_cost = dp.communication.value_or(Communication{});
  const Communication ddp_cost = ddp.communication.value_or(Communication{});
  const std::string dp_text =
      fmt::format("DP copies parameters and gradients for {:.1f} ms of each step, outside backward",
                  dp_cost.ms - dp_cost.hidden_ms);
  const std::string ddp_text = fmt::format(
      "a rank of DDP waits {:.1f} ms for buckets that backward does not hide, slower ranks "
      "included",
      ddp_cost.ms - ddp_cost.hidden_ms);
  const bool dp_won = winner.contestant.mechanism == Mechanism::kDp;
  return dp_won ? ddp_text + "; " + dp_text : dp_text + "; " + ddp_text;
}

std::string why(const RunResult& winner, const Comparison& comparison) {
  switch (winner.contestant.mechanism) {
    case Mechanism::kSingle:
      return fmt::format(
          "on the {} cores of this machine, sharing this model's work costs more than "
          "it saves",
          net::usable_cores());
    case Mechanism::kSingleAllCores:
      return fmt::format(
          "LibTorch's own threads use the {} cores better than copies of the model "
          "do; on more machines only DDP goes on",
          net::usable_cores());
    default: return why_dp_or_ddp(winner, comparison);
  }
}

std::string advice_for(const Contestant& contestant) {
  switch (contestant.mechanism) {
    case Mechanism::kSingle: return "one process on one thread";
    case Mechanism::kSingleAllCores: return "one process on all cores";
    case Mechanism::kDp: return fmt::format("DataParallel on {} devices", contestant.ranks);
    case Mechanism::kDdp:
      return fmt::format("DistributedDataParallel on {} ranks", contestant.ranks);
  }
  return "unknown";
}

}  // namespace

std::string verdict_of(const Comparison& comparison) {
  const RunResult& winner = fastest(comparison);
  std::string others;
  for (const Mechanism mechanism :
       {Mechanism::kDdp, Mechanism::kDp, Mechanism::kSingleAllCores, Mechanism::kSingle}) {
    const RunResult* other = find_run(comparison, mechanism);
    if (other == nullptr || mechanism == winner.contestant.mechanism) continue;
    others += fmt::format("{}{}", others.empty() ? "" : ", ", ratio_to(winner, *other));
  }
  return fmt::format("Here, train this model with {}: {:.0f} {}/s, {}. Why: {}.",
                     advice_for(winner.contestant), winner.samples_per_s, comparison.facts.unit,
                     others, why(winner, comparison));
}

}  // namespace paceline::apps
