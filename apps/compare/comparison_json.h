// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A comparison as JSON: what --json writes and the report shows.

#include <string>

#include "apps/compare/comparison.h"

namespace paceline::apps {

/// `command` as the user gave it; `version` of paceline; `made` is the time, in UTC.
struct Origin {
  std::string version = {};
  std::string command = {};
  std::string made = {};
};

/// Bytes are per step. The fields are those that `paceline compare --help` names, and what the
/// report shows besides.
[[nodiscard]] std::string json_of(const Comparison& comparison, const Origin& origin);

}  // namespace paceline::apps
