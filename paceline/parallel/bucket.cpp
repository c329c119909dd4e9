// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/bucket.h"

#include <memory>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace paceline {
namespace {

// set_ and not as_strided: optimizers call detach_() on gradients, which autograd refuses for what
// it knows to be a view.
at::Tensor view_of(const at::Tensor& memory, std::int64_t offset, const at::Tensor& parameter) {
  at::Tensor view = at::empty({0}, memory.options());
  if (parameter.is_non_overlapping_and_dense()) {
    return view.set_(memory.storage(), offset, parameter.sizes(), parameter.strides());
  }
  return view.set_(memory.storage(), offset, parameter.sizes());
}

}  // namespace

Bucket::Bucket(std::string label,
               Dtype dtype,
               std::vector<std::size_t> members,
               std::span<const NamedTensor> parameters)
    : label_(std::move(label)), dtype_(dtype), members_(std::move(members)) {
  const at::NoGradGuard no_grad;
  std::int64_t count = 0;
  for (const std::size_t member : members_) count += parameters[member].tensor.numel();
  count_ = static_cast<std::uint64_t>(count);
  memory_ = at::empty({count}, parameters[members_.front()].tensor.options().requires_grad(false));
  pieces_ = {Piece{static_cast<std::byte*>(memory_.mutable_data_ptr()), memory_.nbytes()}};
  std::int64_t offset = 0;
  for (const std::size_t member : members_) {
    views_.push_back(view_of(memory_, offset, parameters[member].tensor));
    offset += views_.back().numel();
  }
}

bool Bucket::is_view(std::size_t slot, const at::Tensor& gradient) const {
  const at::Tensor& view = views_[slot];
  return gradient.is_alias_of(view) && gradient.storage_offset() == view.storage_offset() &&
         gradient.strides() == view.strides() && !gradient.requires_grad();
}

bool Bucket::take(std::size_t slot, at::Tensor& gradient) {
  if (is_view(slot, gradient)) return false;
  const at::NoGradGuard no_grad;
  views_[slot].copy_(gradient);
  // A handle of its own: whatever the user does to .grad does not change our view.
  gradient = views_[slot].variable_data();
  return true;
}

void Bucket::start(Communicator& comm, std::chrono::milliseconds timeout) {
  const Call call{.what = Collective::kAllReduce,
                  .op = ReduceOp::kMean,
                  .count = count_,
                  .label = label_,
                  .timeout = timeout,
                  .keeps = std::make_shared<at::Tensor>(memory_)};
  const Buffer buffer{dtype_, count_, pieces_};
  work_ = comm.engine().start(call, buffer, buffer);
  started_ = true;
}

void Bucket::wait() {
  started_ = false;
  std::exchange(work_, {}).wait();
}

}  // namespace paceline
