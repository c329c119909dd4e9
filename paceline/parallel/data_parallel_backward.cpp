// SPDX-License-Identifier: Apache-2.0
// The backward of DataParallelState: gradients on each device, then their sum on the first.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "paceline/base/error.h"
#include "paceline/parallel/data_parallel_state.h"
#include "paceline/parallel/grad_hook.h"
#include "paceline/parallel/replica_errors.h"

namespace paceline {
namespace {

using Order = DeviceThreads::Order;

// Frees the graphs at the end of a backward, also of one that throws, unless they are to be kept.
class ReleaseAfterwards {
 public:
  explicit ReleaseAfterwards(ReplicaPass& pass) : pass_(pass) {}
  ~ReleaseAfterwards() {
    if (!pass_.retain) pass_.release();
  }
  ReleaseAfterwards(const ReleaseAfterwards&) = delete;
  ReleaseAfterwards& operator=(const ReleaseAfterwards&) = delete;

 private:
  ReplicaPass& pass_;
};

// A gradient may be, or share memory with, another one or the user's.
bool is_ours_alone(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.use_count() == 1 &&
         tensor.storage().use_count() == 1 && tensor.is_non_overlapping_and_dense();
}

std::uint64_t bytes_of_gradients(std::span<const at::Tensor> parameters) {
  std::uint64_t bytes = 0;
  for (const auto& parameter : parameters) bytes += bytes_of(parameter.grad());
  return bytes;
}

}  // namespace

std::vector<at::Tensor> DataParallelState::backward_on(const ReplicaPass& pass,
                                                       std::size_t device,
                                                       std::span<const at::Tensor> gradients,
                                                       const std::vector<bool>& wanted) {
  const ReplicaPass::Replica& replica = pass.replicas[device];
  std::vector<at::Tensor> roots, from_outside;
  CopyTimer timer(books_, Copy::kScatter, 0, device);
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    if (!gradients[k].defined() || !replica.outputs[k].requires_grad()) continue;
    roots.push_back(replica.outputs[k]);
    const at::Tensor view = view_of_part(gradients[k], pass.joins[k], device);
    from_outside.push_back(device == 0 ? view : copy_to(replicas_.devices()[device], view));
  }
  if (device != 0) timer.done(bytes_of(from_outside));

  std::vector<at::Tensor> leaves = replica.parameters;
  leaves.insert(leaves.end(), replica.inputs.begin(), replica.inputs.end());
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (wanted[i] && leaves[i].requires_grad()) places.push_back(i);
  }
  std::vector<at::Tensor> result(leaves.size());
  if (roots.empty() || places.empty()) return result;
  std::vector<at::Tensor> asked;
  for (const std::size_t i : places) asked.push_back(leaves[i]);
  PhaseTimer phase(books_, Phase::kBackward, device);
  const auto found = ::torch::autograd::grad(roots, asked, from_outside, pass.retain,
                                             /*create_graph=*/false, /*allow_unused=*/true);
  phase.done();
  for (std::size_t i = 0; i < places.size(); ++i) {
    // Without detach(), a view would keep its base, and seem to share its memory.
    if (found[i].defined()) result[places[i]] = found[i].detach();
  }
  return result;
}

DataParallelState::Gradients DataParallelState::backward_on_all(
    ReplicaPass& pass, std::span<const at::Tensor> gradients, const std::vector<bool>& wanted) {
  const CallerContext caller{at::ThreadLocalState(), pass.streams};
  // Parameters of the first device are the user's: their hooks are for the sum.
  const HooksAside aside(pass.replicas.front().parameters);
  Gradients found(pass.replicas.size());
  const auto errors = threads_.run(
      pass.replicas.size(),
      [&](std::size_t device) {
        const CallerContext::Scope scope(caller, replicas_.devices()[device]);
        found[device] = backward_on(pass, device, gradients, wanted);
        pass.replicas[device].held.emplace_back(books_, device, bytes_of(found[device]));
      },
      // Autograd has a thread for each CUDA device. This is the first one's: it must not sleep.
      replicas_.devices().front().is_cpu() ? Order::kTogether : Order::kFirstOnCaller);
  rethrow_first(errors, replicas_.devices(), "backward");
  return found;
}

at::Tensor DataParallelState::sum(at::Tensor total, const at::Tensor& part) {
  if (!part.defined()) return total;
  if (!total.defined()) return part.clone();
  if (is_ours_alone(total)) return total.add_(part);
  const DeviceBooks::Holding both(books_, 0, bytes_of(total));
  return total.add(part);
}

std::vector<at::Tensor> DataParallelState::sum_of(const ReplicaPass& pass, Gradients& gradients) {
  const c10::Device& home = replicas_.devices().front();
  const std::size_t count = pass.replicas.front().parameters.size();
  std::vector<at::Tensor> total = std::move(gradients.front());
  total.resize(count);
  for (std::size_t device = 1; device < gradients.size(); ++device) {
    CopyTimer timer(books_, Copy::kReduce, device, 0);
    std::vector<at::Tensor> parts(gradients[device].begin(),
                                  gradients[device].begin() + static_cast<std::ptrdiff_t>(count));
    const std::uint64_t bytes = bytes_of(parts);
    std::optional<DeviceBooks::Holding> arrived;
    if (!share_memory(replicas_.devices()[device], home)) {
      parts = carry(parts, home);
      arrived.emplace(books_, 0, bytes);
    }
    for (std::size_t i = 0; i < count; ++i) total[i] = sum(std::move(total[i]), parts[i]);
    timer.done(bytes);
  }
  return total;
}

at::Tensor DataParallelState::joined_gradient(const ReplicaPass& pass,
                                              const Gradients& gradients,
                                              std::size_t input) {
  const std::size_t place = pass.replicas.front().parameters.size() + input;
  std::vector<at::Tensor> parts;
  for (const auto& of_device : gradients) parts.push_back(of_device[place]);
  if (std::none_of(parts.begin(), parts.end(), [](const auto& part) { return part.defined(); })) {
    return {};
  }
  for (std::size_t device = 0; device < parts.size(); ++device) {
    if (!parts[device].defined())
      parts[device] = at::zeros_like(pass.replicas[device].inputs[input]);
  }
  return join(parts, plan_join(parts, options_.batch_dim, input));
}

std::vector<at::Tensor> DataParallelState::backward(ReplicaPass& pass,
                                                    std::span<const at::Tensor> gradients,
                                                    const std::vector<bool>& wanted) {
  if (at::GradMode::is_enabled()) {
    throw UsageError(
        "DataParallel: backward with create_graph: gradients of gradients do not go through it; "
        "compute them inside forward_loss, on each device, or with the plain module");
  }
  const InUse in_use(in_use_);
  pass.retain = backward_retains_graph();
  const ReleaseAfterwards release(pass);
  const StreamScope streams(pass.streams, replicas_.devices().front());
  const DeviceBooks::Holding accumulated(books_, 0,
                                         bytes_of_gradients(pass.replicas.front().parameters));
  Gradients found = backward_on_all(pass, gradients, wanted);
  std::vector<at::Tensor> of_inputs;
  for (std::size_t i = 0; i < pass.replicas.front().inputs.size(); ++i) {
    of_inputs.push_back(joined_gradient(pass, found, i));
  }
  std::vector<at::Tensor> result = sum_of(pass, found);
  result.insert(result.end(), of_inputs.begin(), of_inputs.end());
  ++backwards_;
  return result;
}

}  // namespace paceline
