// SPDX-License-Identifier: Apache-2.0
#include "net.h"

#include <cstddef>
#include <span>

namespace example {

NetImpl::NetImpl()
    : conv1(torch::nn::Conv2dOptions(1, 32, 3)),
      conv2(torch::nn::Conv2dOptions(32, 64, 3)),
      fc1(9216, 128),
      fc2(128, 10) {
  register_module("conv1", conv1);
  register_module("conv2", conv2);
  register_module("fc1", fc1);
  register_module("fc2", fc2);
}

torch::Tensor NetImpl::forward(torch::Tensor x) {
  x = torch::relu(conv1(x));
  x = torch::relu(conv2(x));
  x = torch::max_pool2d(x, 2).flatten(1);
  x = torch::relu(fc1(x));
  return fc2(x);
}

std::uint64_t parameter_hash(const Net& net) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const auto& parameter : net->parameters()) {
    const torch::Tensor values = parameter.detach().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(values.const_data_ptr());
    for (const unsigned char byte : std::span(bytes, values.nbytes())) {
      hash = (hash ^ byte) * 0x100000001b3U;
    }
  }
  return hash;
}

void save_net(const Net& net, const std::string& file) { torch::save(net, file); }

}  // namespace example
