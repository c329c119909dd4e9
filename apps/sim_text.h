// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The figures of `paceline sim` as text for people and as JSON for programs.

#include <string>
#include <vector>

#include "apps/sim_report.h"

namespace paceline::apps {

[[nodiscard]] std::string text_of(const RingReport& ring);
/// The slices of each rank after every step.
[[nodiscard]] std::string steps_of(const RingReport& ring);
[[nodiscard]] std::string text_of(const std::vector<VolumeRow>& rows);
[[nodiscard]] std::string json_of(const RingReport& ring, const std::vector<VolumeRow>& rows);

}  // namespace paceline::apps
