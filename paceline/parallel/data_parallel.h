// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Trains one model on several devices of one process: a replica and a thread for each device.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "paceline/base/ledger.h"
#include "paceline/parallel/module_holder.h"
#include "paceline/parallel/tensor_tree.h"

namespace torch::nn {
class Module;
}

namespace paceline {

/// `count` times the CPU: DataParallel takes each as a device of its own, with its own replica,
/// memory and thread.
///
/// Errors  UsageError if count < 1.
[[nodiscard]] std::vector<c10::Device> cpu_devices(int count);

/// When the replicas run their forwards.
enum class ForwardOrder : std::uint8_t {
  kParallel,
  /// One after the other. Random numbers on the CPU come from one global generator, so only thus do
  /// dropout's patterns repeat under a fixed seed. Backwards run in parallel all the same.
  kDeviceOrder
};

struct DataParallelOptions {
  std::int64_t batch_dim = 0;  ///< along which inputs are split and outputs joined
  ForwardOrder forward_order = ForwardOrder::kParallel;
};

struct DataParallelStatistics {
  std::uint64_t forwards = 0;
  std::uint64_t backwards = 0;
  std::uint64_t trainable_bytes = 0;  ///< M of the traffic formulas, at the last forward
  /// By device, the most bytes of parameters, gradients and outputs that it has held at once:
  /// device 0 has the joined outputs and the sum of gradients too. Outputs count from the end of
  /// their forward to that of their backward. No activations, inputs, or optimizer's state.
  std::vector<std::uint64_t> peak_bytes;
};

class DataParallelState;

/// All of DataParallel that does not depend on the module's type.
class DataParallelBase {
 public:
  /// The module's parameters, each once even if several submodules share it.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

  [[nodiscard]] const std::vector<c10::Device>& devices() const;

  [[nodiscard]] DataParallelStatistics statistics() const;

  /// Writes down copies and phases from now on. `copies` name devices by their places: kReplicate
  /// (trainable parameters, 0 -> i), kState (frozen parameters and buffers, 0 -> i), kScatter
  /// (parts of inputs, and of outputs' gradients, 0 -> i), kGather (outputs, and gradients of
  /// inputs that need one, i -> 0), kReduce (gradients, i -> 0). What device 0 keeps for itself is
  /// no copy. `phases` are each device's kForward and kBackward, on its thread, without those
  /// copies. On CUDA devices times are those of issuing the work.
  ///
  /// Errors  UsageError if capacity is 0.
  void start_ledger(std::size_t capacity = kLedgerCapacity);

  /// What has been written down; stops.
  ///
  /// Errors  UsageError if it was not started.
  [[nodiscard]] Ledger take_ledger();

 protected:
  using MakeReplica = std::function<std::shared_ptr<::torch::nn::Module>()>;
  /// The forward of one replica: takes its part of the inputs, returns its part of the outputs.
  using ReplicaForward =
      std::function<std::vector<at::Tensor>(std::size_t device, std::span<const at::Tensor>)>;

  /// Without `make` replicas are cloned.
  DataParallelBase(std::shared_ptr<::torch::nn::Module> module,
                   std::vector<c10::Device> devices,
                   const DataParallelOptions& options,
                   std::optional<MakeReplica> make);
  DataParallelBase(DataParallelBase&&) noexcept;
  DataParallelBase& operator=(DataParallelBase&&) noexcept;
  ~DataParallelBase();

  /// Errors  UsageError if this was moved from.
  void require_here() const { static_cast<void>(state()); }

  [[nodiscard]] std::shared_ptr<::torch::nn::Module> replica(std::size_t device) const;
  [[noreturn]] void refuse_type_of_replica(std::size_t device) const;

  /// The outputs of all devices, joined on the first.
  [[nodiscard]] std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs,
                                            const ReplicaForward& forward);
  /// The mean over all devices of the one number that each returns, by its share of the batch.
  [[nodiscard]] at::Tensor run_loss(const std::vector<at::Tensor>& inputs,
                                    const ReplicaForward& forward);

 private:
  [[nodiscard]] DataParallelState& state() const;

  std::shared_ptr<DataParallelState> state_;
};

/// Wraps a module so that its forward and backward run on several devices at once, each on a part
/// of the batch.
///
/// Each forward copies the module's parameters and buffers to the other devices' replicas, splits
/// the inputs, runs the replicas and joins their outputs; backward() runs their backwards and adds
/// the sum of their gradients to the module's `.grad`. Step the optimizer over parameters() as
/// before. The module itself is the first device's replica, so BatchNorm's statistics are those of
/// the first part of the batch, as in PyTorch. The other replicas are made once; they follow
/// values, requires_grad and train or eval mode, but no other members that change later.
///
/// Shape     Inputs are trees of tensors (tensor_tree.h); each tensor has the batch at `batch_dim`.
///           A batch of B is split into parts of ceil(B / devices), the last one smaller, as
///           torch::chunk does; so a small batch leaves devices idle. An empty one is one part.
///           What holds no tensor goes to each device as a copy. Outputs are trees too, of the same
///           structure on each device. They are joined along `batch_dim`; scalars become one vector
///           [parts], one number for each part. What holds no tensor is the first device's.
/// Numerics  Gradients are summed, not averaged, in device order: the bits are the same on every
///           run, if those of forward and backward are. A NaN goes through to outputs and
///           gradients.
/// Cost      With N devices and M bytes of trainable parameters, a step moves (N-1)M bytes of
///           parameters from device 0 and (N-1)M bytes of gradients to it; each other device takes
///           M and gives M. Less if the batch has fewer parts, or a parameter has no gradient.
///           Frozen parameters and buffers, parts of inputs and outputs come on top. Between two
///           memories tensors of one type travel as one. On the CPU, each device's thread computes
///           with its share of the threads that LibTorch had at construction, at least one.
/// Errors    UsageError  at construction: no module, no device, one that does not exist, a CUDA
///                       device twice, devices of two kinds, parameters that are not on devices[0]
///                       or sparse, a module that can neither be cloned nor made by the factory, or
///                       whose replica is not like it; a thread that the system refuses.
///                       In forward: inputs without any tensor, without `batch_dim`, or of
///                       different batch sizes; outputs that cannot be joined, or that depend on a
///                       tensor that needs a gradient, but is no parameter and no input;
///                       parameters or buffers added, removed, replaced, or of another shape or
///                       type.
///                       In backward: with create_graph (gradients of gradients), or a second one
///                       without retain_graph.
///                       In both, in a process that was forked from the one that made the wrapper.
///           Others      What replicas throw: all are awaited, then the first is thrown with its
///                       device and the text of the others. c10::Error and its kinds keep their
///                       type, other exceptions the nearest standard one, with the original nested
///                       in it (std::rethrow_if_nested). The wrapper can be used again.
/// Threads   One caller at a time, else UsageError. Grad mode, inference mode, autocast and the
///           current streams are the caller's on each device's thread. The module's forward must
///           not touch what the replicas share, nor change its inputs in place. A thread that starts
///           while a wrapper is constructed may get that one's number of intra-op threads.
template <typename Impl>
class DataParallel : public DataParallelBase {
 public:
  /// Makes the other devices' replicas by clone(); the global random number generators stay as they
  /// are.
  DataParallel(std::shared_ptr<Impl> module,
               std::vector<c10::Device> devices,
               const DataParallelOptions& options = {})
      : DataParallel(std::move(module), std::move(devices), options, std::nullopt) {}

  /// Makes them by `factory`, a function without arguments that returns a new module, as a pointer
  /// or holder: of the same names and shapes, whatever its values, types and device.
  template <std::invocable Factory>
  DataParallel(std::shared_ptr<Impl> module,
               std::vector<c10::Device> devices,
               Factory factory,
               const DataParallelOptions& options = {})
      : DataParallel(std::move(module),
                     std::move(devices),
                     options,
                     MakeReplica([factory = std::move(factory)]() mutable {
                       return std::shared_ptr<Impl>(module_of(factory()));
                     })) {}

  /// From a module holder, such as TORCH_MODULE makes.
  template <ModuleHolderOf<Impl> Holder>
  DataParallel(const Holder& holder,
               std::vector<c10::Device> devices,
               const DataParallelOptions& options = {})
      : DataParallel(module_of(holder), std::move(devices), options) {}
  template <ModuleHolderOf<Impl> Holder, std::invocable Factory>
  DataParallel(const Holder& holder,
               std::vector<c10::Device> devices,
               Factory factory,
               const DataParallelOptions& options = {})
      : DataParallel(module_of(holder), std::move(devices), std::move(factory), options) {}

  /// The module's forward, on all devices.
  template <typename... Args>
  auto operator()(Args&&... args) {
    const std::tuple<std::decay_t<Args>...> arguments(std::forward<Args>(args)...);
    return on_each_device(arguments, [](Impl& replica, auto&&... part) {
      return replica.forward(std::forward<decltype(part)>(part)...);
    });
  }

  /// The module's forward and a loss, both on each device, so that outputs stay where they are.
  /// `input` is the module's argument, or a tuple of its arguments; `loss_fn(output, target)`
  /// returns one number, the mean over its part of the batch.
  ///
  /// Numerics  The mean of the parts' losses, weighted by their sizes: the loss of the whole batch.
  /// Errors    UsageError if loss_fn returns no floating tensor of one element; else as the forward.
  /// Threads   loss_fn is called on all devices' threads at once.
  template <typename Input, typename Target, typename LossFn>
  at::Tensor forward_loss(const Input& input, const Target& target, const LossFn& loss_fn) {
    const std::tuple<Input, Target> arguments(input, target);
    return run_loss(
        tensors_of(arguments), [&](std::size_t device, std::span<const at::Tensor> tensors) {
          auto [part, part_of_target] = with_tensors(arguments, tensors);
          return std::vector<at::Tensor>{
              loss_fn(forward_of(*replicas_[device], std::move(part)), std::move(part_of_target))};
        });
  }

  /// Errors  UsageError if this was moved from.
  [[nodiscard]] const std::shared_ptr<Impl>& module() const {
    require_here();
    return replicas_.front();
  }
  Impl* operator->() { return module().get(); }

 private:
  DataParallel(std::shared_ptr<Impl> module,
               std::vector<c10::Device> devices,
               const DataParallelOptions& options,
               std::optional<MakeReplica> make)
      : DataParallelBase(module, std::move(devices), options, std::move(make)),
        replicas_{std::move(module)} {
    for (std::size_t device = 1; device < this->devices().size(); ++device) {
      replicas_.push_back(std::dynamic_pointer_cast<Impl>(replica(device)));
      if (!replicas_.back()) refuse_type_of_replica(device);
    }
  }

  template <typename Tree>
  static Tree with_tensors(const Tree& tree, std::span<const at::Tensor> tensors) {
    Tree result = tree;
    replace_tensors(result, tensors);
    return result;
  }

  template <typename Input>
  static auto forward_of(Impl& module, Input&& input) {
    if constexpr (requires { module.forward(std::move(input)); }) {
      return module.forward(std::move(input));
    } else {
      return std::apply(
          [&](auto&&... part) { return module.forward(std::forward<decltype(part)>(part)...); },
          std::move(input));
    }
  }

  // Calls body(replica, its part of each argument...) on each device and joins what they return.
  template <typename Arguments, typename Body>
  auto on_each_device(const Arguments& arguments, const Body& body) {
    const auto call = [&](std::size_t device, std::span<const at::Tensor> tensors) {
      return std::apply(
          [&](auto&&... part) {
            return body(*replicas_[device], std::forward<decltype(part)>(part)...);
          },
          with_tensors(arguments, tensors));
    };
    using Output = decltype(call(0, {}));
    if constexpr (std::is_void_v<Output>) {
      (void)run(tensors_of(arguments),
                [&](std::size_t device, std::span<const at::Tensor> tensors) {
                  call(device, tensors);
                  return std::vector<at::Tensor>();
                });
    } else {
      static_assert(is_tensor_tree<Output>(),
                    "DataParallel cannot join what forward() returns: name its tensors by "
                    "tensor_fields(), see tensor_tree.h");
      std::vector<std::optional<Output>> outputs(replicas_.size());
      const auto joined =
          run(tensors_of(arguments), [&](std::size_t device, std::span<const at::Tensor> tensors) {
            return tensors_of(outputs[device].emplace(call(device, tensors)));
          });
      replace_tensors(*outputs.front(), joined);
      return std::move(*outputs.front());
    }
  }

  std::vector<std::shared_ptr<Impl>> replicas_;  // by device; the first is the module
};

template <ModuleHolderOf Holder>
DataParallel(const Holder&, std::vector<c10::Device>, const DataParallelOptions& = {})
    -> DataParallel<typename Holder::ContainedType>;
template <ModuleHolderOf Holder, std::invocable Factory>
DataParallel(const Holder&, std::vector<c10::Device>, Factory, const DataParallelOptions& = {})
    -> DataParallel<typename Holder::ContainedType>;

}  // namespace paceline
