// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What an exercise is held against.

#include <cstdint>

#include "apps/bench/exercise.h"
#include "apps/bench/measure.h"

namespace paceline::apps {

/// Collective. Roofline: the folds of the ranks' chunks, from all ranks' buffers and into them as
/// the collective has it. As many ranks as there are cores make them all, each of its share in turn:
/// so the cores do the work of one call with nobody waiting, and find in their caches what one call
/// leaves there. There is none for private memory, or where ranks share no memory. Copy: the whole
/// buffer, to another of its kind.
[[nodiscard]] Yardsticks make_yardsticks(Communicator& comm,
                                         const BenchOptions& options,
                                         const Exercise& exercise,
                                         std::uint64_t bytes);

}  // namespace paceline::apps
