// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What ranks must have in common before they train together, and its comparison. No LibTorch.

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline {

/// One thing to agree on: "parameter fc.weight", "f32 [3, 4] …".
struct Trait {
  std::string name;
  std::string value;
  bool operator==(const Trait&) const = default;
};
using Fingerprint = std::vector<Trait>;

/// The first difference as a sentence; `mine` belongs to `me`, `other` to `who`. Empty if equal.
[[nodiscard]] std::string first_difference(const Fingerprint& mine,
                                           const Fingerprint& other,
                                           std::string_view who,
                                           std::string_view me = "rank 0");

/// Compares over all ranks.
///
/// Order   Collective.
/// Cost    16 bytes per rank gathered; the whole text travels only if something differs.
/// Errors  UsageError, the same on every rank, which begins with `who` and names the first
///         difference, both sides and the ranks that are unlike rank 0.
void require_equal_on_all_ranks(const Fingerprint& fingerprint,
                                Communicator& comm,
                                std::chrono::milliseconds timeout = kDefaultTimeout,
                                std::string_view who = "DistributedDataParallel: the models");

}  // namespace paceline
