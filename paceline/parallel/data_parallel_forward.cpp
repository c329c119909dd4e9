// SPDX-License-Identifier: Apache-2.0
// The forward of DataParallelState: refresh, scatter, run, join.
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "paceline/base/error.h"
#include "paceline/parallel/data_parallel_state.h"
#include "paceline/parallel/grad_hook.h"
#include "paceline/parallel/module_tensors.h"
#include "paceline/parallel/replica_errors.h"

namespace paceline {
namespace {

using Order = DeviceThreads::Order;

void require_known_leaves(const ReplicaPass::Replica& replica) {
  std::vector<at::Tensor> known = replica.parameters;
  known.insert(known.end(), replica.inputs.begin(), replica.inputs.end());
  const at::Tensor leaf = unknown_leaf(replica.outputs, known);
  if (!leaf.defined()) return;
  throw UsageError(
      "the outputs depend on a tensor " + list_of(leaf.sizes()) +
      " that needs a gradient, but is neither a parameter of this device's replica nor "
      "an input: its gradient would be lost; register it, pass it in, or detach it");
}

void require_same_outputs(const std::vector<ReplicaPass::Replica>& replicas) {
  for (std::size_t device = 1; device < replicas.size(); ++device) {
    if (replicas[device].defined == replicas.front().defined) continue;
    throw UsageError("DataParallel: devices[" + std::to_string(device) + "] returned " +
                     std::to_string(replicas[device].outputs.size()) + " tensors, devices[0] " +
                     std::to_string(replicas.front().outputs.size()) +
                     ", or in other places; all must return the same structure");
  }
}

}  // namespace

void DataParallelState::refresh(const ReplicaPass& pass, const CallerContext& caller) {
  if (pass.parts.size() == 1) return;
  // All of it before any forward: that of the module itself may change its buffers.
  const auto errors = threads_.run(
      pass.parts.size(),
      [&](std::size_t device) {
        if (device == 0) return;
        const CallerContext::Scope scope(caller, replicas_.devices()[device]);
        replicas_.refresh(device, books_);
      },
      Order::kFirstOnCaller);
  rethrow_first(errors, replicas_.devices(), "replicating");
}

std::vector<at::Tensor> DataParallelState::scatter(std::span<const at::Tensor> inputs,
                                                   const Part& part,
                                                   std::size_t device) {
  const at::NoGradGuard no_grad;
  const c10::Device& to = replicas_.devices()[device];
  std::vector<at::Tensor> result;
  CopyTimer timer(books_, Copy::kScatter, 0, device);
  for (const at::Tensor& input : inputs) {
    // detach() after narrow(), so that the part is no view for autograd.
    const at::Tensor view = input.narrow(options_.batch_dim, part.begin, part.size).detach();
    result.push_back(device == 0 ? view.to(to) : copy_to(to, view));
  }
  if (device != 0) timer.done(bytes_of(result));
  return result;
}

void DataParallelState::forward_on(ReplicaPass& pass,
                                   std::size_t device,
                                   std::span<const at::Tensor> inputs,
                                   const Forward& forward) {
  ReplicaPass::Replica& replica = pass.replicas[device];
  replica.parameters = replicas_.trainable(device);
  replica.inputs = scatter(inputs, pass.parts[device], device);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (at::GradMode::is_enabled() && inputs[i].requires_grad()) {
      replica.inputs[i].set_requires_grad(true);
    }
  }
  PhaseTimer timer(books_, Phase::kForward, device);
  const std::vector<at::Tensor> outputs = forward(device, replica.inputs);
  timer.done();
  for (const at::Tensor& output : outputs) {
    replica.defined.push_back(output.defined());
    if (output.defined()) replica.outputs.push_back(output);
  }
  replica.held.emplace_back(books_, device, bytes_of(replica.outputs));
  require_known_leaves(replica);
}

at::Tensor DataParallelState::join(std::span<const at::Tensor> parts, const JoinPlan& plan) {
  if (parts.size() == 1) {
    // A copy, as of several parts: an output may be an input, or another output.
    const at::Tensor alone = parts.front().detach().clone();
    return plan.of_scalars ? alone.reshape({1}) : alone;
  }
  at::Tensor joined = empty_for(parts, plan);
  for (std::size_t device = 0; device < parts.size(); ++device) {
    CopyTimer timer(books_, Copy::kGather, device, 0);
    view_of_part(joined, plan, device).copy_(parts[device].detach());
    if (device != 0) timer.done(bytes_of(parts[device]));
  }
  return joined;
}

std::vector<at::Tensor> DataParallelState::join_outputs(ReplicaPass& pass) {
  require_same_outputs(pass.replicas);
  std::vector<at::Tensor> joined;
  for (std::size_t k = 0; k < pass.replicas.front().outputs.size(); ++k) {
    const auto parts = pass.parts_of_output(k);
    pass.joins.push_back(plan_join(parts, options_.batch_dim, k));
    joined.push_back(join(parts, pass.joins.back()));
  }
  if (pass.replicas.size() > 1) pass.held.emplace_back(books_, 0, bytes_of(joined));
  return joined;
}

std::vector<at::Tensor> DataParallelState::forward(ReplicaPass& pass,
                                                   std::span<const at::Tensor> inputs,
                                                   const Forward& forward,
                                                   const CallerContext& caller) {
  pass.replicas.resize(pass.parts.size());
  refresh(pass, caller);
  const auto errors = threads_.run(
      pass.parts.size(),
      [&](std::size_t device) {
        const CallerContext::Scope scope(caller, replicas_.devices()[device]);
        forward_on(pass, device, inputs, forward);
      },
      options_.forward_order == ForwardOrder::kDeviceOrder ? Order::kInTurn : Order::kTogether);
  rethrow_first(errors, replicas_.devices(), "forward");
  return join_outputs(pass);
}

}  // namespace paceline
