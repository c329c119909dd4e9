// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The training that `paceline bench step` times. This header shows no LibTorch.

#include "apps/bench/step_options.h"
#include "apps/bench/step_report.h"
#include "paceline/comm/communicator.h"

namespace paceline::apps {

/// Takes this rank's part in the steps of all modes: one of each in turn. Collective.
///
/// Errors  UsageError, CommError, c10::Error; std::runtime_error if the model has other parameters
///         than its count says.
[[nodiscard]] StepFigures train_steps(Communicator& comm, const StepOptions& options);

}  // namespace paceline::apps
