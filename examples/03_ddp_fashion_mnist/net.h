// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The model: two convolutions and two linear layers, 1,199,882 parameters.

#include <torch/torch.h>

#include <cstdint>
#include <string>

namespace example {

struct NetImpl : torch::nn::Module {
  NetImpl();
  /// [batch, 1, 28, 28] -> scores [batch, 10]
  torch::Tensor forward(torch::Tensor x);

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Net);

/// FNV-1a, 64 bit, over the bytes of all parameters in the order of named_parameters(): equal
/// parameters have equal hashes, different ones almost surely not.
[[nodiscard]] std::uint64_t parameter_hash(const Net& net);

/// torch::save of the plain module, under its own names.
///
/// Errors  c10::Error if the file cannot be written.
void save_net(const Net& net, const std::string& file);

}  // namespace example
