// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What `paceline bench step` was asked to do.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace paceline::apps {

/// How a rank takes a step.
enum class StepMode : std::uint8_t {
  kLocal,  ///< alone, while the others do the same
  kDdp,    ///< DistributedDataParallel
  kShared  ///< SharedSGD or SharedAdam
};

/// "local", "ddp", "shared".
[[nodiscard]] const char* name_of(StepMode mode) noexcept;

struct StepModel {
  const char* name;
  std::uint64_t parameters;  ///< elements: a model that has other ones is none of ours
  std::int64_t batch;        ///< samples of each rank
  std::int64_t steps;        ///< that are measured unless the user says otherwise
};

/// Parts of nearly equal length, each with new models: where a model lies in memory decides a
/// percent or two, for as long as it lives.
constexpr std::int64_t kStepStretches = 4;
/// Step that stretch `index` of `steps` begins with.
constexpr std::int64_t begin_of_stretch(std::int64_t index, std::int64_t steps) noexcept {
  return steps / kStepStretches * index + std::min(index, steps % kStepStretches);
}

/// As the user wrote it.
struct StepWords {
  int ranks = 2;
  std::string model = "mlp";
  std::string optimizer = "sgd";
  std::string modes = "local,ddp,shared";
  std::optional<std::int64_t> steps = {};
};

struct StepOptions {
  int ranks = 2;
  StepModel model;
  std::string optimizer;
  std::vector<StepMode> modes;
  std::int64_t steps = 30;  ///< of each mode, that are measured
};

/// Errors  UsageError that names the option, its value and what it may be.
[[nodiscard]] StepOptions step_options_from(const StepWords& words);

}  // namespace paceline::apps
