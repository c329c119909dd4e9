// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Bytes that a schedule moves: counted from its steps, and in closed form beside it.

#include <cstdint>
#include <functional>

#include "paceline/plan/schedule.h"

namespace paceline::plan {

/// Calls `count(sender, receiver, bytes)` for each payload transfer that `step` of `rank` causes:
/// a kSend its range; a remote `from` read, a remote `to` written. They follow from the step alone.
void for_each_transfer(const Step& step,
                       int rank,
                       int world,
                       Dtype dtype,
                       const std::function<void(int, int, std::uint64_t)>& count);

/// Payload bytes that shape.rank sends, or writes into windows, summed over its steps.
[[nodiscard]] std::uint64_t bytes_sent(const Schedule& schedule, const Shape& shape, Dtype dtype);
/// Payload bytes that shape.rank reads from windows.
[[nodiscard]] std::uint64_t bytes_read(const Schedule& schedule, const Shape& shape, Dtype dtype);

/// The same in closed form, without a schedule: ring all-reduce 2b - c[r] - c[(r+1) mod N],
/// one_stage (N-1)b, pairwise all-reduce b - c[r] + (N-1)c[r], relay (N-1)b on rank 0 and b on
/// the others, direct all-reduce (N-1)c[r] written … Derivations: docs/algorithms.md.
///
/// Errors  UsageError as make_schedule.
[[nodiscard]] std::uint64_t formula_bytes_sent(Algorithm algorithm,
                                               const Shape& shape,
                                               Dtype dtype);

/// bytes_read() in closed form: direct all-reduce and reduce-scatter (N-1)c[r], all-gather b - c[r],
/// broadcast b but on the root; one_stage over windows (N-1)b; 0 without windows.
///
/// Errors  UsageError as make_schedule.
[[nodiscard]] std::uint64_t formula_bytes_read(Algorithm algorithm,
                                               const Shape& shape,
                                               Dtype dtype);

}  // namespace paceline::plan
