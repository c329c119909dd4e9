// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A comparison for the terminal.

#include <cstddef>
#include <string>

#include "apps/compare/comparison.h"

namespace paceline::apps {

/// What will be done, before it is.
[[nodiscard]] std::string introduction_of(const CompareOptions& options);

/// Conclusion, whether losses agree, table. Lines are at most `columns` long where words allow it.
[[nodiscard]] std::string text_of(const Comparison& comparison, std::size_t columns);

}  // namespace paceline::apps
