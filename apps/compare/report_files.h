// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The files of apps/compare/report/, as the build embeds them.

#include <span>
#include <string_view>

namespace paceline::apps {

/// Template, style, then the scripts in the order in which they run.
[[nodiscard]] std::span<const std::string_view> report_files();

}  // namespace paceline::apps
