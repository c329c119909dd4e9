// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/step_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "paceline/base/error.h"

namespace paceline::apps {
namespace {

constexpr int kMostStepRanks = 64;
constexpr std::int64_t kMostSteps = 1'000'000;

// Each mode takes seconds: one step's time says little.
constexpr std::array<StepModel, 5> kStepModels{{{"mlp", 12'609'546, 8, 60},
                                                {"cnn", 1'199'882, 32, 60},
                                                {"gpt", 3'210'762, 8, 30},
                                                {"gpt-wide", 12'712'970, 16, 30},
                                                {"many", 512'000, 8, 150}}};
constexpr std::array kStepModes{StepMode::kLocal, StepMode::kDdp, StepMode::kShared};

StepModel model_from(const std::string& name) {
  std::string known;
  for (const StepModel& model : kStepModels) {
    if (name == model.name) return model;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", model.name);
  }
  throw UsageError(fmt::format("--model '{}': must be one of {}", name, known));
}

StepMode mode_from(const std::string& name, const std::string& all) {
  for (const StepMode mode : kStepModes) {
    if (name == name_of(mode)) return mode;
  }
  throw UsageError(fmt::format("--mode {}: '{}' must be one of local, ddp, shared", all, name));
}

std::vector<StepMode> modes_from(const std::string& text) {
  std::vector<StepMode> modes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const StepMode mode = mode_from(text.substr(begin, end - begin), text);
    if (std::ranges::find(modes, mode) != modes.end()) {
      throw UsageError(fmt::format("--mode {}: {} stands there twice", text, name_of(mode)));
    }
    modes.push_back(mode);
    begin = end + 1;
  }
  return modes;
}

}  // namespace

const char* name_of(StepMode mode) noexcept {
  switch (mode) {
    case StepMode::kLocal: return "local";
    case StepMode::kDdp: return "ddp";
    case StepMode::kShared: return "shared";
  }
  return "?";
}

StepOptions step_options_from(const StepWords& words) {
  if (words.ranks < 1 || words.ranks > kMostStepRanks) {
    throw UsageError(fmt::format("-n is {}: it must be from 1 to {}", words.ranks, kMostStepRanks));
  }
  const StepModel model = model_from(words.model);
  const std::int64_t steps = words.steps.value_or(model.steps);
  if (steps < 1 || steps > kMostSteps) {
    throw UsageError(fmt::format("--steps is {}: it must be from 1 to {}", steps, kMostSteps));
  }
  if (words.optimizer != "sgd" && words.optimizer != "adam") {
    throw UsageError(fmt::format("--optimizer '{}': must be one of sgd, adam", words.optimizer));
  }
  return {.ranks = words.ranks,
          .model = model,
          .optimizer = words.optimizer,
          .modes = modes_from(words.modes),
          .steps = steps};
}

}  // namespace paceline::apps
