// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The machine that a comparison ran on, as the system describes it.

#include <cstdint>
#include <string>

namespace paceline::apps {

struct Machine {
  int cores = 1;  ///< that this process may use
  std::string cpu;
  std::uint64_t memory_bytes = 0;
  std::string system;
  double load = 0;  ///< processes that want a core, mean of the last minute
};

/// What the system does not tell is "unknown", or 0.
[[nodiscard]] Machine this_machine();

}  // namespace paceline::apps
