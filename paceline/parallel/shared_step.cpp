// SPDX-License-Identifier: Apache-2.0
// A step of a shared optimizer, with clipping or without.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "paceline/base/error.h"
#include "paceline/parallel/shared_training.h"

namespace paceline {

void SharedTraining::step() {
  const at::NoGradGuard no_grad;
  guarded([&] {
    prepare_step();
    if (!kept_means_.empty()) {
      comm_.barrier(calls("clipped step"));  // else a rank may still use the parameters
      for (std::size_t round = 0; round < kept_means_.size(); ++round) {
        shards_[round].copy_(kept_means_[round]).mul_(scale_);
        update_round(round);
      }
    } else {
      reducer_->take(*shared_);
      if (comm_.world_size() == 1) {
        update_alone();
      } else {
        average(Means::kToParameters, [&](std::size_t round) { update_round(round); });
      }
    }
    finish_step();
  });
}

// Calls `use` for each round once shards_ has its mean, if that goes there; the next round is under
// way meanwhile.
void SharedTraining::average(Means means, const std::function<void(std::size_t round)>& use) {
  std::array<bool, ShardReducer::kUnderWay> added{};
  std::size_t started = 0;
  const auto start_more = [&](std::size_t end) {
    for (; started < std::min(rounds_.size(), end); ++started) {
      std::optional<ShardReducer::Addition> addition;
      if (means == Means::kToParameters) addition = plain_update(started);
      added[started % added.size()] = addition.has_value();
      reducer_->start(started, rounds_[started], addition, calls("gradients"));
    }
  };
  for (std::size_t round = 0; round < rounds_.size(); ++round) {
    try {
      start_more(round + ShardReducer::kUnderWay);
    } catch (const UsageError&) {  // this rank's call was refused, and its links are closed
      close();
      throw;
    }
    reducer_->finish(round);
    if (!added[round % added.size()]) use(round);
  }
}

// If a step does no more to this rank's share of the round than to add its scaled mean.
std::optional<ShardReducer::Addition> SharedTraining::plain_update(std::size_t round) const {
  const auto& [dtype, count, stretches] = rounds_[round];
  const auto algorithm = comm_.algorithm_for(Collective::kReduceScatter, dtype, count);
  std::optional<ScaledAdd> how;
  for (const Cell& cell : cells_[round]) {
    const auto of_cell = rule_->plain_update(groups_.at(cell.group), dtype);
    if (!of_cell || (how && *how != *of_cell)) return std::nullopt;
    how = of_cell;
  }
  if (!how || algorithm != Algorithm::kDirect) return std::nullopt;
  return ShardReducer::Addition{parameter_pieces_[round], *how};
}

void SharedTraining::require_untouched() const {
  module_.require_unchanged();
  const std::string edited = shared_->edited();
  if (edited.empty()) return;
  module_.refuse("changed outside of step(): " + edited +
                 "; all ranks share this memory, use write_once()");
}

void SharedTraining::prepare_step() {
  require_untouched();
  if (!rates_agreed_) {
    require_equal_on_all_ranks(groups_.traits(), comm_, timeout_, title_ + ": the rates");
    rates_agreed_ = true;
  }
  if (!kept_means_.empty() && reducer_->changed_since_take()) {
    module_.refuse("a gradient has changed since clip_grad_norm(); clip after the last backward");
  }
  if (kept_means_.empty()) require_gradients();
}

void SharedTraining::require_gradients() {
  const std::string fault = reducer_->fault();
  if (fault.empty()) return;
  const std::string text = "rank " + std::to_string(comm_.rank()) + ": " + title_ + ": " + fault;
  comm_.abort(text);
  throw CommError(CommErrc::kAborted, comm_.rank(), -1, text);
}

// The mean over one rank is its own gradient, read where it lies.
void SharedTraining::update_alone() {
  for (const auto& cells : cells_) {
    for (const Cell& cell : cells) {
      rule_->update(cell, reducer_->taken(cell.parameter_index, cell.elements),
                    groups_.at(cell.group), steps_ + 1);
    }
  }
}

void SharedTraining::update_round(std::size_t round) {
  for (const Cell& cell : cells_[round]) {
    rule_->update(cell, cell.scratch, groups_.at(cell.group), steps_ + 1);
  }
}

void SharedTraining::finish_step() {
  comm_.barrier(calls("end of step"));
  shared_->accept();
  reducer_->release();
  kept_means_.clear();
  ++steps_;
  module_.synchronize_buffers();
  if (arrival_) follow_arrival();
}

void SharedTraining::zero_grad() {
  kept_means_.clear();
  reducer_->release();
  for (const auto& one : trainable_) one.tensor.mutable_grad().reset();
}

double SharedTraining::clip_grad_norm(double max_norm) {
  if (!(max_norm > 0)) {
    throw UsageError(title_ + ": max_norm is " + exact_text(max_norm) + ", not positive");
  }
  const at::NoGradGuard no_grad;
  double norm = 0;
  guarded([&] {
    kept_means_.clear();
    require_untouched();
    require_gradients();
    reducer_->take(*shared_);
    norm = norm_of_means(max_norm);
    const double scale = max_norm / (norm + 1e-6);
    scale_ = scale > 1 ? 1 : scale;  // NaN stays
  });
  return norm;
}

double SharedTraining::norm_of_means(double max_norm) {
  double own = 0;
  average(Means::kToShards, [&](std::size_t round) {
    kept_means_.push_back(shards_[round].clone());
    const at::Tensor values = shards_[round].to(at::kDouble);
    own += values.dot(values).item<double>();
  });
  const std::array<double, 2> mine{own, max_norm};
  std::vector<double> all(2 * static_cast<std::size_t>(comm_.world_size()));
  comm_.allgather(std::span<const double>(mine), std::span(all), calls("clip_grad_norm"));
  double sum = 0;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    sum += all[i];
    if (all[i + 1] == all[1]) continue;
    kept_means_.clear();
    throw UsageError(title_ + ": max_norm is " + exact_text(all[1]) + " on rank 0, but " +
                     exact_text(all[i + 1]) + " on rank " + std::to_string(i / 2));
  }
  return std::sqrt(sum);
}

}  // namespace paceline
