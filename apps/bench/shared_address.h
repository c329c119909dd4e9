// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where each rank's buffer lies for this one.

#include <cstddef>
#include <vector>

#include "apps/bench/exercise.h"
#include "apps/bench/options.h"
#include "paceline/comm/communicator.h"

namespace paceline::apps {

/// Collective. The addresses, in this process, of the buffers that the ranks bring; none if one of
/// them is out of reach. Ranks that are threads reach everything.
[[nodiscard]] std::vector<std::byte*> shared_addresses(Communicator& comm,
                                                       const BenchOptions& options,
                                                       const BenchBuffer& own);

}  // namespace paceline::apps
