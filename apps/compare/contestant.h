// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Who takes part in a comparison.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::apps {

/// A way to train.
enum class Mechanism : std::uint8_t {
  kSingle,          ///< one process, one thread: what the others are measured against
  kSingleAllCores,  ///< one process, LibTorch's own threads on all cores
  kDp,
  kDdp
};

/// As in JSON: "single", "single_all_cores", "dp", "ddp".
[[nodiscard]] std::string_view name_of(Mechanism mechanism) noexcept;
/// Errors  UsageError if there is none of this name.
[[nodiscard]] Mechanism mechanism_of(std::string_view name);

struct Contestant {
  Mechanism mechanism = Mechanism::kSingle;
  int ranks = 1;  ///< devices of DP
  bool operator==(const Contestant&) const = default;
};

/// For people: "one thread", "all cores", "DP, 2 devices", "DDP, 2 ranks".
[[nodiscard]] std::string title_of(const Contestant& contestant);

/// Both single ones, then DP and DDP for each of `ranks`.
[[nodiscard]] std::vector<Contestant> contestants_for(const std::vector<int>& ranks);

}  // namespace paceline::apps
