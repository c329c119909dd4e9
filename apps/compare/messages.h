// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Records as bytes, the form in which they travel. Both ends are the same program.

#include <string>

#include "apps/compare/record.h"

namespace paceline::apps {

[[nodiscard]] std::string text_of(const TrainingSettings& settings);
[[nodiscard]] std::string text_of(const ProcessRecord& record);

/// Errors  std::runtime_error if `text` is no such record.
[[nodiscard]] TrainingSettings settings_from(const std::string& text);
[[nodiscard]] ProcessRecord record_from(const std::string& text);

}  // namespace paceline::apps
