// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What can be told about the schedules of all ranks without running them. Private to sim.

#include <span>
#include <string>

#include "paceline/plan/schedule.h"

namespace paceline::sim {

/// Rule 4: what a sends to b is what b receives from a, in order, range and wire form; nobody sends
/// to itself, to a rank that does not exist, or names a memory that the step's kind has no use for.
///
/// Errors  BrokenRule, with the two ranks and the first message that differs.
void check_matching(std::span<const plan::Schedule> schedules);

/// Rank, index and content of a step, for messages.
[[nodiscard]] std::string describe(const plan::Step& step);

}  // namespace paceline::sim
