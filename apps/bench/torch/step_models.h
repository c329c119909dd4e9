// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The models of `paceline bench step` and their samples: those of bench/peers/step_peer.py.

#include <torch/torch.h>

#include <memory>

#include "apps/bench/step_options.h"
#include "apps/compare/torch/models.h"

namespace paceline::apps {

/// With random parameters.
///
/// Errors  std::runtime_error if it has other parameters than `model` says.
[[nodiscard]] std::shared_ptr<Model> make_step_model(const StepModel& model);

/// One rank's random samples.
[[nodiscard]] torch::Tensor make_step_batch(const StepModel& model);

[[nodiscard]] std::uint64_t count_parameters(const Model& model);

}  // namespace paceline::apps
