// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/bucket.h"

#include <utility>

#include <ATen/ops/empty.h>

#include "paceline/base/error.h"

namespace paceline {
namespace {

at::Tensor flat_memory(Engine& engine, std::int64_t count, const at::TensorOptions& options) {
  const at::Tensor ordinary = at::empty({count}, options);
  if (count == 0 || !engine.shares_memory()) return ordinary;
  const std::size_t bytes = ordinary.nbytes();
  return tensor_over(storage_over(reachable_if_possible(engine, bytes), 0, bytes), 0, ordinary);
}

Piece piece_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

bool is_view(const at::Tensor& gradient, const at::Tensor& home) {
  return gradient.is_alias_of(home) && gradient.storage_offset() == home.storage_offset() &&
         gradient.strides() == home.strides() && !gradient.requires_grad();
}

}  // namespace

Bucket::Bucket(std::string label,
               Dtype dtype,
               std::vector<std::size_t> members,
               std::span<const NamedTensor> parameters,
               Engine& engine,
               GradientArena* arena)
    : label_(std::move(label)), dtype_(dtype), members_(std::move(members)), arena_(arena) {
  for (const std::size_t member : members_) {
    slots_.push_back({.parameter = parameters[member].tensor});
    count_ += static_cast<std::uint64_t>(slots_.back().parameter.numel());
  }
  furnish(engine);
}

void Bucket::furnish(Engine& engine) {
  const auto lives_here = [&](const at::Tensor& parameter) {
    return arena_ == nullptr || parameter.nbytes() < GradientArena::kSmallestBytes;
  };
  std::int64_t count = 0;
  for (const Slot& slot : slots_) count += lives_here(slot.parameter) ? slot.parameter.numel() : 0;
  memory_ = flat_memory(engine, count, slots_.front().parameter.options().requires_grad(false));
  std::int64_t offset = 0;
  for (Slot& slot : slots_) {
    if (!lives_here(slot.parameter)) continue;
    slot.home = tensor_over(memory_.storage(), offset, slot.parameter);
    slot.piece = piece_of(slot.home);
    offset += slot.parameter.numel();
  }
}

CopyReason Bucket::take(std::size_t index, at::Tensor& gradient, const at::Tensor& passing) {
  Slot& slot = slots_[index];
  if (!slot.home.defined()) return take_in_place(slot, gradient, passing);
  if (is_view(gradient, slot.home)) return CopyReason::kNone;
  copy_bits(slot.home, gradient, slot.parameter);
  // A handle of its own: whatever the user does to .grad does not change our view.
  gradient = slot.home.variable_data();
  return arena_ == nullptr ? CopyReason::kBucketView : CopyReason::kSmall;
}

CopyReason Bucket::take_in_place(Slot& slot, at::Tensor& gradient, const at::Tensor& passing) {
  slot.taken = {};  // our own hold must not look like somebody else's
  CopyReason reason = obstacle_of(gradient, slot.parameter, passing, *arena_);
  if (reason != CopyReason::kNone) {
    at::Tensor copy = arena_->make_like(slot.parameter);
    if (!copy.defined()) {
      // Nobody else uses it: it goes out from where it is, and the links copy.
      const bool free_to_go = reason == CopyReason::kOutside;
      reason = CopyReason::kExhausted;
      if (!free_to_go) copy = empty_as(slot.parameter);
    }
    if (copy.defined()) {
      copy_bits(copy, gradient, slot.parameter);
      gradient = std::move(copy);
    }
  }
  slot.piece = piece_of(gradient);
  slot.taken = gradient.storage();
  return reason;
}

std::vector<Piece> Bucket::pieces() const {
  std::vector<Piece> result;
  for (const Slot& slot : slots_) {
    if (!result.empty() && result.back().data + result.back().bytes == slot.piece.data) {
      result.back().bytes += slot.piece.bytes;
    } else {
      result.push_back(slot.piece);
    }
  }
  return result;
}

void Bucket::start(Engine& engine, std::chrono::milliseconds timeout, Progress progress) {
  kept_ = std::make_shared<Kept>(Kept{.memory = memory_, .taken = {}});
  for (Slot& slot : slots_) {
    if (slot.taken) kept_->taken.push_back(std::exchange(slot.taken, {}));
  }
  const Call call{.what = Collective::kAllReduce,
                  .op = ReduceOp::kMean,
                  .count = count_,
                  .label = label_,
                  .timeout = timeout,
                  .keeps = kept_,
                  .progress = progress};
  const std::vector<Piece> parts = pieces();
  const Buffer buffer{dtype_, count_, parts};
  work_ = engine.start(call, buffer, buffer);
  started_ = true;
}

void Bucket::wait() {
  started_ = false;
  std::exchange(work_, {}).wait();
  kept_.reset();
}

}  // namespace paceline
