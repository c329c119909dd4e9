// SPDX-License-Identifier: Apache-2.0
// The autograd function that joins the replicas' graphs to the user's, and what surrounds it.
#include "paceline/parallel/data_parallel_state.h"

#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "paceline/base/error.h"

namespace paceline {
namespace {

using ::torch::autograd::AutogradContext, ::torch::autograd::variable_list;

// What autograd keeps from a forward to its backward.
struct Crossing : ::torch::CustomClassHolder {
  explicit Crossing(std::shared_ptr<DataParallelState> of) : state(std::move(of)) {}
  const std::shared_ptr<DataParallelState> state;
  ReplicaPass pass;
};

struct AcrossReplicas : ::torch::autograd::Function<AcrossReplicas> {
  static constexpr const char* kCrossing = "crossing";

  static variable_list forward(AutogradContext* context,
                               const c10::intrusive_ptr<Crossing>& crossing,
                               const DataParallelState::Forward* forward,
                               const CallerContext* caller,
                               at::TensorList parameters,
                               at::TensorList inputs) {
    (void)parameters;  // the graph's, and only named here to be part of it
    ReplicaPass& pass = crossing->pass;
    variable_list joined = crossing->state->forward(pass, inputs, *forward, *caller);
    variable_list constant;
    for (std::size_t k = 0; k < joined.size(); ++k) {
      const auto parts = pass.parts_of_output(k);
      if (std::none_of(parts.begin(), parts.end(),
                       [](const at::Tensor& part) { return part.requires_grad(); })) {
        constant.push_back(joined[k]);
      }
    }
    context->mark_non_differentiable(constant);
    context->set_materialize_grads(false);
    context->saved_data[kCrossing] = c10::IValue::make_capsule(crossing);
    return joined;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data[kCrossing].toCapsule();
    auto& crossing = static_cast<Crossing&>(*capsule);
    if (crossing.pass.released()) {
      throw UsageError(
          "DataParallel: backward a second time through a graph that was freed; the first one "
          "needs "
          "retain_graph");
    }
    const auto& replica = crossing.pass.replicas.front();
    std::vector<bool> wanted(replica.parameters.size() + replica.inputs.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = context->needs_input_grad(i);
    variable_list result(3);  // crossing, forward, caller
    for (auto& gradient : crossing.state->backward(crossing.pass, gradients, wanted)) {
      result.push_back(std::move(gradient));
    }
    return result;
  }
};

std::vector<at::Tensor> only_defined(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(result),
               [](const at::Tensor& tensor) { return tensor.defined(); });
  return result;
}

// The other way round: `tensors` at the places where `defined`.
std::vector<at::Tensor> spread(std::span<const at::Tensor> tensors,
                               const std::vector<bool>& defined) {
  std::vector<at::Tensor> result(defined.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < defined.size(); ++i) {
    if (defined[i]) result[i] = tensors[next++];
  }
  return result;
}

std::vector<bool> which_are_defined(const std::vector<at::Tensor>& tensors) {
  std::vector<bool> result;
  for (const auto& tensor : tensors) result.push_back(tensor.defined());
  return result;
}

}  // namespace

void ReplicaPass::release() {
  replicas.clear();
  held.clear();
}

std::vector<at::Tensor> ReplicaPass::parts_of_output(std::size_t k) const {
  std::vector<at::Tensor> result;
  for (const auto& replica : replicas) result.push_back(replica.outputs[k]);
  return result;
}

InUse::InUse(std::atomic<bool>& flag) : flag_(flag) {
  if (flag_.exchange(true)) {
    throw UsageError(
        "DataParallel: it is at work already, called by another thread or by one of its replicas");
  }
}

DataParallelState::DataParallelState(std::shared_ptr<::torch::nn::Module> module,
                                     std::vector<c10::Device> devices,
                                     const DataParallelOptions& options,
                                     const std::optional<Replicas::Make>& make)
    : options_(options),
      replicas_(std::move(module), std::move(devices), make),
      books_(replicas_.devices().size()),
      threads_(replicas_.devices().size(),
               std::max(1, at::get_num_threads() / static_cast<int>(replicas_.devices().size()))) {
  const std::uint64_t parameters = bytes_of(replicas_.parameters());
  for (std::size_t device = 0; device < replicas_.devices().size(); ++device) {
    parameters_held_.emplace_back(books_, device, parameters);
  }
  trainable_bytes_ = bytes_of(replicas_.trainable(0));
}

DataParallelStatistics DataParallelState::statistics() const {
  return {.forwards = forwards_,
          .backwards = backwards_,
          .trainable_bytes = trainable_bytes_,
          .peak_bytes = books_.peaks()};
}

DataParallelState::Outputs DataParallelState::run(const std::vector<at::Tensor>& inputs,
                                                  const Forward& forward) {
  const InUse in_use(in_use_);
  replicas_.follow_module();
  const std::int64_t batch = batch_size_of(inputs, options_.batch_dim);
  const auto crossing = c10::make_intrusive<Crossing>(shared_from_this());
  ReplicaPass& pass = crossing->pass;
  pass.parts = split_batch(batch, replicas_.devices().size());
  pass.streams = current_streams(replicas_.devices());
  const CallerContext caller{at::ThreadLocalState(), pass.streams};
  const std::vector<bool> defined = which_are_defined(inputs);
  const Forward with_undefined = [&](std::size_t device, std::span<const at::Tensor> tensors) {
    return forward(device, spread(tensors, defined));
  };
  const auto joined = AcrossReplicas::apply(crossing, &with_undefined, &caller,
                                            at::TensorList(replicas_.trainable(0)),
                                            at::TensorList(only_defined(inputs)));
  trainable_bytes_ = bytes_of(replicas_.trainable(0));
  ++forwards_;
  return {spread(joined, pass.replicas.front().defined), pass.parts};
}

}  // namespace paceline
