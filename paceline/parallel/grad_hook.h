// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The few autograd internals that data parallelism stands on; all that is not public API is here.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::autograd {
struct FunctionPreHook;
}

namespace paceline {

/// Calls `on_ready` in the backward thread each time `parameter.grad()` has received its gradient.
/// Its argument is that gradient as it came, in autograd's hand; its memory may now be `.grad`'s.
///
/// Threads  The callback runs on autograd's thread, in backward order, once per backward that
///          reaches the parameter.
/// Errors   UsageError if `parameter` is no leaf or does not require grad. What `on_ready` throws
///          leaves backward() as it is.
/// @return  The hook's owner: autograd holds its accumulators only weakly, so the hook lives as
///          long as this does, or as a graph that uses the parameter.
[[nodiscard]] std::shared_ptr<void> on_gradient_ready(
    const at::Tensor& parameter, std::function<void(const at::Tensor&)> on_ready);

/// Runs `then` when the backward that is running now has finished. Call only while one runs.
void when_backward_ends(std::function<void()> then);

/// A number for the backward that runs on this thread; -1 if none does.
[[nodiscard]] int current_backward();

/// Whether a backward function is being evaluated on this thread. In a callback of
/// when_backward_ends() that means: this backward was started from within another one.
[[nodiscard]] bool inside_backward_function();

/// Whether the backward that runs on this thread was told to retain its graph.
[[nodiscard]] bool backward_retains_graph();

/// A leaf that needs a gradient, that `outputs` depend on, and that is not among `known`; undefined
/// if there is none.
///
/// Cost  One visit of each node of the graph.
[[nodiscard]] at::Tensor unknown_leaf(std::span<const at::Tensor> outputs,
                                      std::span<const at::Tensor> known);

/// For its scope, the hooks that users have registered on these leaves do not run.
///
/// Threads  No backward but the one in this scope may reach these leaves meanwhile.
class HooksAside {
 public:
  explicit HooksAside(const std::vector<at::Tensor>& leaves);
  ~HooksAside();
  HooksAside(const HooksAside&) = delete;
  HooksAside& operator=(const HooksAside&) = delete;

 private:
  void swap();

  const std::vector<at::Tensor>& leaves_;
  std::vector<std::vector<std::unique_ptr<::torch::autograd::FunctionPreHook>>> hooks_;
};

}  // namespace paceline
