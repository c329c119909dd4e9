// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The conclusion and the table in words, made from the figures. Terminal, JSON and report say the
/// same.

#include <string>
#include <vector>

#include "apps/compare/comparison.h"

namespace paceline::apps {

/// Which way to train here, and why.
[[nodiscard]] std::string verdict_of(const Comparison& comparison);

struct TableRow {
  std::string what = {};
  std::string dp = {};
  std::string ddp = {};
};
struct TableSection {
  std::string dimension = {};
  std::vector<TableRow> rows = {};
};

/// Process model, gradient path, performance, scale.
[[nodiscard]] std::vector<TableSection> table_of(const Comparison& comparison);

/// What the figures do not say.
[[nodiscard]] std::vector<std::string> notes_of(const Comparison& comparison);

/// "28.8 MB"; a megabyte is 10^6 bytes.
[[nodiscard]] std::string megabytes(std::uint64_t bytes);

}  // namespace paceline::apps
