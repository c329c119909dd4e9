// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The parameters and buffers of a module: what they are in words, and whether they are still what
/// they were when the module was wrapped.

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/parallel/fingerprint.h"
#include "paceline/parallel/tensor_io.h"

namespace torch::nn {
class Module;
}

namespace paceline {

/// "[3, 4]"
[[nodiscard]] std::string list_of(at::IntArrayRef numbers);
/// "f32 [3, 4]"
[[nodiscard]] std::string kind_of(const at::Tensor& tensor);
/// Why the gradient of the parameter, which has one, cannot be averaged; empty if it can.
[[nodiscard]] std::string fault_of_gradient(const NamedTensor& parameter);

/// Each parameter or buffer under each of its names, in the order of registration.
[[nodiscard]] std::vector<NamedTensor> parameters_of(const ::torch::nn::Module& module);
[[nodiscard]] std::vector<NamedTensor> buffers_of(const ::torch::nn::Module& module);

/// Each tensor once, at its first place.
[[nodiscard]] std::vector<NamedTensor> without_repeats(const std::vector<NamedTensor>& tensors);
[[nodiscard]] std::vector<at::Tensor> tensors_only(const std::vector<NamedTensor>& tensors);

/// Some tensors of a module as they were at one moment.
///
/// Threads  One caller at a time.
class RememberedTensors {
 public:
  explicit RememberedTensors(const std::vector<NamedTensor>& tensors);

  /// How `now` differs, but for requires_grad: "fc.weight was replaced"; empty if it does not.
  [[nodiscard]] std::string change(const std::vector<NamedTensor>& now) const;
  /// Whether they are what parameters_of() would give, unchanged, but for their names.
  ///
  /// Cost  Some nanoseconds per parameter, where change() makes all names anew.
  [[nodiscard]] bool are_parameters_of(const ::torch::nn::Module& module) const;
  /// The same for requires_grad alone: "fc.weight now requires grad".
  [[nodiscard]] std::string change_of_requires_grad() const;

 private:
  struct Remembered {
    NamedTensor named;
    bool requires_grad;
    at::ScalarType type;
    at::Device device;
    std::vector<std::int64_t> sizes;
  };
  [[nodiscard]] static std::string change_of(const Remembered& was, const at::Tensor& is);
  [[nodiscard]] std::string first_change(const std::vector<NamedTensor>& now) const;

  std::vector<Remembered> remembered_;
};

}  // namespace paceline
