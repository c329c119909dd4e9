// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The copies of a module that run on the other devices: made once, refreshed at each forward.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "paceline/parallel/device_books.h"
#include "paceline/parallel/module_tensors.h"

namespace paceline {

/// A module and its replicas. The replica on devices[0] is the module itself.
///
/// Threads  One caller at a time, but for refresh(): there, one for each device.
class Replicas {
 public:
  using Module = ::torch::nn::Module;
  using Make = std::function<std::shared_ptr<Module>()>;

  /// By `make`, or by clone() without it. The random number generators stay as they are.
  ///
  /// Errors  UsageError that names what is wrong with the module, or with a replica of it.
  Replicas(std::shared_ptr<Module> module,
           std::vector<c10::Device> devices,
           const std::optional<Make>& make);

  [[nodiscard]] const std::shared_ptr<Module>& on(std::size_t device) const {
    return modules_[device];
  }
  [[nodiscard]] const std::vector<c10::Device>& devices() const noexcept { return devices_; }

  /// Takes over what has changed about the module: requires_grad, train or eval mode.
  ///
  /// Errors  UsageError that names a parameter or buffer that was added, removed, replaced, or has
  ///         another shape, type or device.
  void follow_module();

  /// Copies the module's values to a replica.
  void refresh(std::size_t device, DeviceBooks& books);

  /// The parameters that require grad, in the same order on each device.
  [[nodiscard]] const std::vector<at::Tensor>& trainable(std::size_t device) const {
    return trainable_[device];
  }
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

 private:
  // Tensors of one replica that are refreshed, and through what: memory of theirs that autograd
  // does not watch, so that a refresh with the same values disturbs no graph.
  struct Copies {
    std::vector<at::Tensor> tensors;
    std::vector<at::Tensor> unwatched;
    std::vector<std::uint32_t> versions;  // of the originals, when they were copied last
  };
  // Those of one kind: trainable, or not.
  struct Group {
    std::vector<at::Tensor> originals;
    std::vector<Copies> copies;  // by device; none on the first
  };

  [[nodiscard]] std::shared_ptr<Module> make(std::size_t device, const std::optional<Make>& make);
  void require_alike(std::size_t device) const;
  void require_separate(std::size_t device) const;
  void place(std::size_t device);
  void pair_submodules(std::size_t device);
  void sort_by_kind();
  void refresh(Group& group, Copy what, std::size_t device, DeviceBooks& books) const;

  const std::vector<c10::Device> devices_;
  std::vector<std::shared_ptr<Module>> modules_;  // by device
  std::vector<std::pair<std::shared_ptr<Module>, std::shared_ptr<Module>>> submodules_;
  RememberedTensors parameters_;
  RememberedTensors buffers_;
  std::vector<std::vector<at::Tensor>> state_;      // by device: each parameter and buffer once
  std::vector<std::vector<at::Tensor>> trainable_;  // by device
  Group weights_;                                   // trainable
  Group others_;                                    // frozen parameters, buffers
};

}  // namespace paceline
