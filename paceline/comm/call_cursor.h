// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How far a call has come in its schedule, and which step may move how far next.

#include <cstdint>
#include <vector>

#include "paceline/plan/schedule.h"

namespace paceline {

/// Cursors of one call: one lane out and one in per peer, one local lane. Only the first unfinished
/// step of a lane is a candidate; a step moves in element order and never past an earlier step that
/// it conflicts with (rules 2 and 3 of plan/schedule.h).
class CallCursor {
 public:
  using StepIndex = std::uint32_t;
  static constexpr StepIndex kNone = 0xffffffffU;

  CallCursor(const plan::Schedule& schedule, int rank, int world);

  [[nodiscard]] StepIndex first_out(int peer) const { return first_of(out_, peer); }
  [[nodiscard]] StepIndex first_in(int peer) const { return first_of(in_, peer); }
  [[nodiscard]] StepIndex first_local() const { return local_; }

  [[nodiscard]] const plan::Step& step(StepIndex i) const { return steps_[i].step; }
  /// Number of the step's message to (or from) its peer within the call.
  [[nodiscard]] std::uint32_t message(StepIndex i) const { return steps_[i].message; }
  /// First element that step i has not done.
  [[nodiscard]] std::uint64_t at(StepIndex i) const { return steps_[i].at; }
  /// First element that step i may not touch yet; at(i) if it may not move.
  [[nodiscard]] std::uint64_t limit(StepIndex i) const;

  void advance(StepIndex i, std::uint64_t elements) { steps_[i].at += elements; }
  /// Ends step i, which is the first of its lane.
  void finish(StepIndex i);

  [[nodiscard]] bool done() const { return open_ == 0; }
  /// The kAwait that the local lane stands at, if it does.
  [[nodiscard]] const plan::Step* awaiting() const;

 private:
  struct State {
    plan::Step step;
    std::uint64_t at;
    std::uint32_t message;
    StepIndex next;  // in its lane
    bool done;
  };
  [[nodiscard]] StepIndex first_of(const std::vector<StepIndex>& lanes, int peer) const {
    return windows_ ? kNone : lanes[static_cast<std::size_t>(peer)];
  }
  [[nodiscard]] StepIndex& lane_of(const plan::Step& step);

  bool windows_;
  int rank_;
  int world_;
  std::vector<State> steps_;
  std::vector<StepIndex> out_, in_;  // [world]; empty over windows, where nothing is sent
  StepIndex local_ = kNone;
  StepIndex first_open_ = 0;
  std::size_t open_;
};

}  // namespace paceline
