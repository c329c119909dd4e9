// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the times in a measurement say.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "apps/compare/timeline.h"
#include "apps/compare/training_run.h"

namespace paceline::apps {

/// Of many values: the middle, and those that a tenth lie below and above.
struct Spread {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};

/// Interpolates between neighbours. `values` holds at least one.
[[nodiscard]] Spread spread_of(std::vector<double> values);

/// Milliseconds of each step: from the first participant's begin to the last one's end.
[[nodiscard]] std::vector<double> step_times_ms(const Measurement& measurement);

/// Parameters and gradients on their way, per step and participant.
struct Communication {
  double ms = 0;         ///< at least one transfer is under way
  double hidden_ms = 0;  ///< of these, while gradients are being computed
  [[nodiscard]] double share_hidden() const noexcept { return ms > 0 ? hidden_ms / ms : 0; }
};

/// Nothing if nothing was communicated.
[[nodiscard]] std::optional<Communication> communication_of(const Measurement& measurement);

/// All measured steps, or one of them; microseconds since the first, or that one, began.
[[nodiscard]] TraceRun timeline_of(const Measurement& measurement);
[[nodiscard]] TraceRun timeline_of_step(const Measurement& measurement, std::size_t step);

}  // namespace paceline::apps
