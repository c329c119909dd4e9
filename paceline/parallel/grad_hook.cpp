// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/grad_hook.h"

#include <cstddef>
#include <unordered_set>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "paceline/base/error.h"

namespace paceline {
namespace {

class GradientHook final : public ::torch::autograd::FunctionPostHook {
 public:
  explicit GradientHook(std::function<void(const at::Tensor&)> on_ready)
      : on_ready_(std::move(on_ready)) {}
  ::torch::autograd::variable_list operator()(
      const ::torch::autograd::variable_list& outputs,
      const ::torch::autograd::variable_list& inputs) override {
    on_ready_(inputs.at(0));
    return outputs;
  }

 private:
  std::function<void(const at::Tensor&)> on_ready_;
};

}  // namespace

std::shared_ptr<void> on_gradient_ready(const at::Tensor& parameter,
                                        std::function<void(const at::Tensor&)> on_ready) {
  if (!parameter.requires_grad() || !parameter.is_leaf()) {
    throw UsageError("on_gradient_ready: the tensor is no trainable leaf");
  }
  // A shared_ptr before LibTorch 2.15, an intrusive_ptr since.
  auto accumulator = ::torch::autograd::impl::grad_accumulator(parameter);
  accumulator->add_post_hook(std::make_unique<GradientHook>(std::move(on_ready)));
  return std::make_shared<decltype(accumulator)>(std::move(accumulator));
}

void when_backward_ends(std::function<void()> then) {
  ::torch::autograd::Engine::get_default_engine().queue_callback(std::move(then));
}

int current_backward() { return ::torch::autograd::get_current_graph_task_id(); }

bool inside_backward_function() { return static_cast<bool>(::torch::autograd::get_current_node()); }

bool backward_retains_graph() { return ::torch::autograd::get_current_graph_task_keep_graph(); }

at::Tensor unknown_leaf(std::span<const at::Tensor> outputs, std::span<const at::Tensor> known) {
  using ::torch::autograd::AccumulateGrad, ::torch::autograd::Edge, ::torch::autograd::Node;
  std::unordered_set<const at::TensorImpl*> leaves;
  for (const auto& tensor : known) leaves.insert(tensor.unsafeGetTensorImpl());
  std::vector<Edge> roots;  // they keep the graph alive
  std::vector<Node*> left;
  std::unordered_set<Node*> seen;
  const auto visit = [&](const Edge& edge) {
    Node* node = edge.function.get();
    if (node != nullptr && seen.insert(node).second) left.push_back(node);
  };
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    visit(roots.emplace_back(::torch::autograd::impl::gradient_edge(output)));
  }
  while (!left.empty()) {
    const Node& node = *left.back();
    left.pop_back();
    for (const auto& edge : node.next_edges()) visit(edge);
    if (!node.next_edges().empty()) continue;
    const auto* leaf = dynamic_cast<const AccumulateGrad*>(&node);
    if (leaf == nullptr || leaves.contains(leaf->variable.unsafeGetTensorImpl())) continue;
    return leaf->variable;
  }
  return {};
}

HooksAside::HooksAside(const std::vector<at::Tensor>& leaves)
    : leaves_(leaves), hooks_(leaves.size()) {
  swap();
}

HooksAside::~HooksAside() { swap(); }

void HooksAside::swap() {
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    std::swap(::torch::autograd::impl::hooks(leaves_[i]), hooks_[i]);
  }
}

}  // namespace paceline
