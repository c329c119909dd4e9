// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Times of training steps, for people and for programs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/step_options.h"

namespace paceline::apps {

/// What one mode took on the slowest rank, step by step.
struct ModeTimes {
  StepMode mode = StepMode::kLocal;
  std::vector<double> step_ms = {};
  std::uint64_t bytes_copied = 0;    ///< of gradients in the last step, on the rank with most
  std::uint64_t bytes_in_place = 0;  ///< the same, on the rank with fewest
};

struct StepFigures {
  std::string link;         ///< what joined the ranks
  std::string link_reason;  ///< why it is not shm
  std::uint64_t parameters = 0;
  std::uint64_t tensors = 0;  ///< that these parameters are cut into
  std::vector<ModeTimes> modes;
};

/// In one line, and back: what rank 0 tells the process that started it.
[[nodiscard]] std::string text_of(const StepFigures& figures);
[[nodiscard]] StepFigures step_figures_from(const std::string& text);

/// What a step took longer than local's of the same turn: the median of each stretch, and their
/// mean; none without local, and for local itself 0.
[[nodiscard]] std::optional<double> overhead_ms(const ModeTimes& times, const StepFigures& figures);

/// Before the first step.
[[nodiscard]] std::string introduction_of(const StepOptions& options);
[[nodiscard]] std::string table_of(const StepFigures& figures);
[[nodiscard]] std::string json_of(const StepFigures& figures, const StepOptions& options);

}  // namespace paceline::apps
