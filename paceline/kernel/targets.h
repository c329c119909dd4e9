// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The choice of a SIMD target by hand. Private: for tests and benchmarks.

#include <string>
#include <vector>

namespace paceline::kernel {

/// Names of the SIMD targets that this build has and this CPU can run, best first.
[[nodiscard]] std::vector<std::string> targets();

/// While it lives, fold() runs on the target of that name; afterwards on the best one again.
///
/// Errors   UsageError if `targets()` lacks the name.
/// Threads  No fold() may run while one is made or destroyed; one at a time.
class ForcedTarget {
 public:
  explicit ForcedTarget(const std::string& name);
  ~ForcedTarget();
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

}  // namespace paceline::kernel
