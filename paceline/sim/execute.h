// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Executes a collective of all ranks in memory, with plain loops, and counts what crosses each
/// link.
///
/// The schedules are the library's own (plan::make_schedule); the arithmetic is a twin of its
/// kernels with nothing in common but the rules, so a result here is what the library must return.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "paceline/plan/schedule.h"
#include "paceline/sim/broken_rule.h"
#include "paceline/sim/count.h"

namespace paceline::sim {

/// What a collective left behind.
template <Reducible T>
struct Outcome {
  std::vector<std::vector<T>> results;  ///< per rank, the elements of Schedule::out
  std::vector<LinkTraffic> links;       ///< in the order of (from, to)
};

/// Called after each step that `rank` has done, with its buffer as it is then: kIn and kOut are one
/// memory, and kSum lies over it where the schedule allows that.
using AfterStep =
    std::function<void(int rank, const plan::Step& step, std::span<const std::byte> buffer)>;

/// The same without types: `inputs` and `results` are the elements' bytes.
struct UntypedOutcome {
  std::vector<std::vector<std::byte>> results;
  std::vector<LinkTraffic> links;
};
[[nodiscard]] UntypedOutcome execute_untyped(Algorithm algorithm,
                                             const plan::Shape& shape,
                                             Dtype dtype,
                                             ReduceOp op,
                                             std::span<const std::span<const std::byte>> inputs,
                                             const AfterStep& after_step = {});

/// Runs `shape.what` on all ranks, each in program order.
///
/// Shape     inputs[r] holds the elements of rank r's Schedule::in: all of them, or chunk r for
///           all-gather; broadcast reads only the root's. shape.rank is ignored.
/// Numerics  As the library, to the bit.
/// Cost      O(steps of all ranks + elements moved); the schedules of all ranks are in memory.
/// Errors    UsageError  as plan::make_schedule; if `inputs` do not fit; for the mean of integers.
///           BrokenRule  if the schedules do not work: this would be a bug in plan.
template <Reducible T>
[[nodiscard]] Outcome<T> execute(Algorithm algorithm,
                                 const plan::Shape& shape,
                                 ReduceOp op,
                                 std::span<const std::vector<T>> inputs,
                                 const AfterStep& after_step = {}) {
  std::vector<std::span<const std::byte>> bytes;
  for (const auto& input : inputs) bytes.push_back(std::as_bytes(std::span(input)));
  UntypedOutcome untyped = execute_untyped(algorithm, shape, dtype_of<T>(), op, bytes, after_step);
  Outcome<T> outcome{.results = {}, .links = std::move(untyped.links)};
  for (const auto& result : untyped.results) {
    auto& typed = outcome.results.emplace_back(result.size() / sizeof(T));
    if (!result.empty()) std::memcpy(typed.data(), result.data(), result.size());
  }
  return outcome;
}

}  // namespace paceline::sim
