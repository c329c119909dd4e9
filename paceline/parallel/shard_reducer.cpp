// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/shard_reducer.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "paceline/parallel/gradient_place.h"
#include "paceline/parallel/module_tensors.h"

namespace paceline {
namespace {

std::uint64_t shard_count(const Round& round, int rank) {
  std::uint64_t count = 0;
  for (const Stretch& stretch : round.stretches) {
    if (stretch.owner == rank) count += stretch.elements.size();
  }
  return count;
}

const std::byte* start_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

}  // namespace

ShardReducer::ShardReducer(std::span<const NamedTensor> parameters, Communicator& comm)
    : parameters_(parameters.begin(), parameters.end()), comm_(comm), homes_(parameters.size()) {
  if (comm.world_size() == 1) return;
  arena_ = std::make_unique<GradientArena>(comm.share_engine(), parameters_);
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : parameters_) {
    if (tensor.nbytes() < GradientArena::kSmallestBytes) bytes += rounded_to_lines(tensor.nbytes());
  }
  if (bytes == 0) return;
  const Region region = reachable_if_possible(comm.engine(), bytes);
  std::size_t at = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    if (tensor.nbytes() >= GradientArena::kSmallestBytes || tensor.numel() == 0) continue;
    homes_[i] = tensor_over(storage_over(region, at, tensor.nbytes()), 0, tensor);
    at += rounded_to_lines(tensor.nbytes());
  }
}

void ShardReducer::lay_out(std::span<const Round> rounds) {
  std::size_t largest = 1;
  for (const Round& round : rounds) {
    largest = std::max(largest, shard_count(round, comm_.rank()) * size_of(round.dtype));
  }
  if (largest <= shard_bytes_) return;
  const std::size_t each = rounded_to_lines(largest);
  shards_ = reachable_if_possible(comm_.engine(), kUnderWay * each);
  shard_bytes_ = each;
}

std::string ShardReducer::fault() const {
  std::string missing;
  for (const NamedTensor& parameter : parameters_) {
    if (!parameter.tensor.grad().defined()) {
      missing += (missing.empty() ? "" : ", ") + parameter.name;
    } else if (std::string fault = fault_of_gradient(parameter); !fault.empty()) {
      return fault;
    }
  }
  if (missing.empty()) return {};
  return "there is no gradient for " + missing +
         "; every parameter that requires grad must take part in each step";
}

at::Tensor ShardReducer::values_of(std::size_t index,
                                   const at::Tensor& gradient,
                                   const SharedParameters& shared) const {
  const at::Tensor& parameter = parameters_[index].tensor;
  const bool as_it_is =
      !homes_[index].defined() && lies_like(gradient, parameter) && !shared.touches(gradient);
  if (as_it_is) return gradient;
  at::Tensor values = homes_[index];
  if (!values.defined() && arena_) values = arena_->make_like(parameter);
  if (!values.defined()) values = empty_as(parameter);
  copy_bits(values, gradient, parameter);
  return values;
}

void ShardReducer::take(const SharedParameters& shared) {
  const at::NoGradGuard no_grad;
  taken_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].tensor.grad();
    taken_.push_back({.gradient = gradient,
                      .version = version_of(gradient),
                      .values = values_of(i, gradient, shared)});
  }
  separate_overlaps();
  bytes_ = count_taken();
  kept_ = std::make_shared<Kept>(taken_, shards_);
}

GradientBytes ShardReducer::count_taken() const {
  GradientBytes bytes;
  for (const Taken& one : taken_) {
    const bool in_place =
        one.values.is_same(one.gradient) && (!arena_ || arena_->holds(one.gradient));
    (in_place ? bytes.in_place : bytes.copied) += one.values.nbytes();
  }
  return bytes;
}

// For a.view(-1) + b.view(-1) the gradients of a and b are the same memory, and the pieces of a
// call must not overlap.
void ShardReducer::separate_overlaps() {
  std::vector<std::size_t> order(taken_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return start_of(taken_[a].values) < start_of(taken_[b].values);
  });
  const std::byte* end = nullptr;
  for (const std::size_t index : order) {
    at::Tensor& values = taken_[index].values;
    if (values.numel() == 0) continue;
    const std::byte* const this_end = start_of(values) + values.nbytes();
    if (start_of(values) < end) {
      const at::Tensor copy = empty_as(parameters_[index].tensor);
      copy_bits(copy, values, parameters_[index].tensor);
      values = copy;
    }
    end = std::max(end, this_end);
  }
}

void ShardReducer::release() {
  taken_.clear();
  kept_.reset();
}

at::Tensor ShardReducer::taken(std::size_t index, Range elements) const {
  const at::Tensor& values = taken_[index].values;
  return values.as_strided({static_cast<std::int64_t>(elements.size())}, {1},
                           values.storage_offset() + static_cast<std::int64_t>(elements.begin));
}

bool ShardReducer::changed_since_take() const {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    const at::Tensor& now = parameters_[i].tensor.grad();
    if (!now.is_same(taken_[i].gradient) || version_of(now) != taken_[i].version) {
      return true;
    }
  }
  return false;
}

void ShardReducer::start(std::size_t index,
                         const Round& round,
                         const std::optional<Addition>& addition,
                         const CallOptions& options) {
  std::vector<Piece> pieces;
  const std::size_t size = size_of(round.dtype);
  for (const Stretch& stretch : round.stretches) {
    auto* const data = static_cast<std::byte*>(taken_[stretch.parameter].values.mutable_data_ptr());
    pieces.push_back({data + stretch.elements.begin * size, stretch.elements.size() * size});
  }
  const std::uint64_t own = shard_count(round, comm_.rank());
  const Piece shard{place_of(index), own * size};
  const Call call{.what = Collective::kReduceScatter,
                  .op = ReduceOp::kMean,
                  .count = round.count,
                  .label = options.label,
                  .timeout = options.timeout,
                  .keeps = kept_,
                  .progress = Progress::kCaller,
                  .adds = addition ? std::optional(addition->how) : std::nullopt};
  const auto out = addition ? addition->pieces : std::span<const Piece>(&shard, 1);
  work_[index % kUnderWay] =
      comm_.engine().start(call, {round.dtype, round.count, pieces}, {round.dtype, own, out});
  comm_.engine().advance();  // tells the others that our gradients are there
}

void ShardReducer::finish(std::size_t index) { std::exchange(work_[index % kUnderWay], {}).wait(); }

at::Tensor ShardReducer::shard_of(std::size_t index, const Round& round) const {
  const at::Tensor& like = parameters_[round.stretches.front().parameter].tensor;
  return at::from_blob(
      place_of(index), {static_cast<std::int64_t>(shard_count(round, comm_.rank()))},
      [keep = shards_.data](void*) {}, like.options().requires_grad(false));
}

void ShardReducer::serve_here() {
  if (arena_) arena_->serve_here();
}
void ShardReducer::leave_here() {
  if (arena_) arena_->leave_here();
}
void ShardReducer::close() {
  for (Work& one : work_) {
    try {
      std::exchange(one, {}).wait();
    } catch (const std::exception&) {  // what has failed is told already
    }
  }
  if (arena_) arena_->close();
}

}  // namespace paceline
