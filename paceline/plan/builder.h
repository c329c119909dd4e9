// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Writes the steps of one rank down; private to plan. Ranks and chunks are taken mod world, so
/// that algorithms name their neighbours without wrapping.

#include <algorithm>
#include <utility>

#include "paceline/plan/schedule.h"

namespace paceline::plan {

/// Errors  UsageError as make_schedule.
void check_shape(Algorithm algorithm, const Shape& shape);

/// The schedule of one rank while it is written.
class Builder {
 public:
  explicit Builder(const Shape& shape);

  [[nodiscard]] long rank() const noexcept { return shape_.rank; }
  [[nodiscard]] long world() const noexcept { return shape_.world; }
  [[nodiscard]] long root() const noexcept { return shape_.root; }
  [[nodiscard]] bool resident() const noexcept { return shape_.resident; }
  [[nodiscard]] std::uint32_t slices() const noexcept { return shape_.slices; }
  [[nodiscard]] Range all() const noexcept { return {0, shape_.count}; }
  [[nodiscard]] Range chunk(long c) const noexcept {
    return plan::chunk(shape_.count, shape_.world, c);
  }
  [[nodiscard]] std::uint16_t wrap(long rank) const noexcept;
  /// `rank` alone.
  [[nodiscard]] Ranks one(long rank) const noexcept { return {wrap(rank), 1}; }
  [[nodiscard]] Range slice(long c, std::uint32_t p) const noexcept {
    return plan::slice(shape_.count, shape_.world, c, p, shape_.slices);
  }
  /// All ranks but this one.
  [[nodiscard]] Ranks others() const noexcept;
  /// All ranks, from `first` on.
  [[nodiscard]] Ranks all_from(long first) const noexcept;

  void reserve(long steps) { schedule_.steps.reserve(static_cast<std::size_t>(steps)); }
  void set_in(Range elements) noexcept { schedule_.in = elements; }
  void set_out(Range elements) noexcept { schedule_.out = elements; }
  void set_inbox(Range elements) noexcept { schedule_.inbox = elements; }
  /// kSum holds all elements; it may lie over kOut where that holds all elements too.
  void set_sum() noexcept;

  void send(Memory src, Range elements, long to);
  void receive(Memory dst, Range elements, long from);
  /// dst = incoming (+) this rank's kIn.
  void receive_and_add(Form wire, Memory dst, Range elements, long from);
  /// kOut = the inbox's slots of `from`, added in that order. Empty folds are left out.
  void fold_inbox(Ranks from, Range elements);
  /// kOut = kIn.
  void copy(Range elements);
  /// `dst` of each in `to` = `src` of `from`, added in that order. Empty folds are left out.
  void fold(Memory src, Ranks from, Memory dst, Ranks to, Range elements);
  void post(int flag, Ranks to, Range elements);
  void await(int flag, Ranks from, Range elements);
  /// The same for all elements: whatever comes earlier in the schedule is done before, whatever
  /// comes later after.
  void post(int flag, Ranks to) { post(flag, to, fence()); }
  void await(int flag, Ranks from) { await(flag, from, fence()); }
  /// The same, and nobody is told or awaited.
  void order() { await(0, {}); }
  void set_windows() noexcept { schedule_.windows = true; }
  void set_stage(const Staging& stage) noexcept { schedule_.stage = stage; }

  [[nodiscard]] Schedule take() && { return std::move(schedule_); }

 private:
  [[nodiscard]] Range fence() const noexcept {
    return {0, std::max<std::uint64_t>(1, shape_.count)};
  }

  Shape shape_;
  Schedule schedule_;
};

// One function per (algorithm, collective); the table that picks one is in make_schedule.cpp.
// An all-gather starts when chunk(rank) is in kOut.
void ring_reduce_scatter(Builder& b);
void ring_allgather(Builder& b);
void pairwise_reduce_scatter(Builder& b);
void pairwise_allgather(Builder& b);
void one_stage_allreduce(Builder& b);
void one_stage_window_allreduce(Builder& b);
void direct_allreduce(Builder& b);
void direct_reduce_scatter(Builder& b);
void direct_allgather(Builder& b);
void direct_broadcast(Builder& b);
void direct_barrier(Builder& b);
void relay_allreduce(Builder& b);
void tree_broadcast(Builder& b);
void dissemination_barrier(Builder& b);

}  // namespace paceline::plan
