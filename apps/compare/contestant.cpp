// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/contestant.h"

#include <fmt/format.h>

#include <array>

#include "paceline/base/error.h"

namespace paceline::apps {
namespace {
constexpr std::array<std::string_view, 4> kNames{"single", "single_all_cores", "dp", "ddp"};
}

std::string_view name_of(Mechanism mechanism) noexcept {
  return kNames.at(static_cast<std::size_t>(mechanism));
}

Mechanism mechanism_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames.at(i) == name) return static_cast<Mechanism>(i);
  }
  throw UsageError(fmt::format("'{}' is no way to train", name));
}

std::string title_of(const Contestant& contestant) {
  switch (contestant.mechanism) {
    case Mechanism::kSingle: return "one thread";
    case Mechanism::kSingleAllCores: return "all cores";
    case Mechanism::kDp: return fmt::format("DP, {} devices", contestant.ranks);
    case Mechanism::kDdp: return fmt::format("DDP, {} ranks", contestant.ranks);
  }
  return "unknown";
}

std::vector<Contestant> contestants_for(const std::vector<int>& ranks) {
  std::vector<Contestant> all{{Mechanism::kSingle, 1}, {Mechanism::kSingleAllCores, 1}};
  for (const int n : ranks) {
    all.push_back({Mechanism::kDp, n});
    all.push_back({Mechanism::kDdp, n});
  }
  return all;
}

}  // namespace paceline::apps
