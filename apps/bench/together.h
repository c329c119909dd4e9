// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What ranks tell each other about their times. Their clocks are one: all run on one host.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline::apps {

/// Nanoseconds since some point that is the same for all processes.
[[nodiscard]] std::int64_t now_ns();

/// Nanoseconds that a look at the clock takes.
[[nodiscard]] double clock_cost_ns();

/// Every rank's numbers, rank after rank; all have as many.
[[nodiscard]] std::vector<std::int64_t> gather(Communicator& comm,
                                               std::span<const std::int64_t> mine);

/// Rank 0's numbers, everywhere.
void adopt_from_first(Communicator& comm, std::span<std::int64_t> numbers);

/// All ranks do `run` so many times on end, at the same time, without waiting for each other in
/// between. @return microseconds of one, from the first rank's begin to the last one's end.
[[nodiscard]] double time_together_us(Communicator& comm,
                                      const std::function<void()>& run,
                                      std::int64_t times);

}  // namespace paceline::apps
