// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The models of the DDP tests, named as in tests/fixtures/make_ddp_fixtures.py, and how exact
/// their gradients must be.

#include <torch/torch.h>

namespace paceline::tests {

struct MlpImpl : ::torch::nn::Module {
  MlpImpl() = default;
  ::torch::Tensor forward(::torch::Tensor x) {
    return fc3(::torch::tanh(fc2(::torch::tanh(fc1(x)))));
  }
  ::torch::nn::Linear fc1 = register_module("fc1", ::torch::nn::Linear(12, 16));
  ::torch::nn::Linear fc2 = register_module("fc2", ::torch::nn::Linear(16, 16));
  ::torch::nn::Linear fc3 = register_module("fc3", ::torch::nn::Linear(16, 5));
  // Terms of all dot products on the way to a gradient: forward 12 + 16 + 16, backward 5 + 16 + 16
  // and the batch of 4.
  static constexpr double kChain = 85;
};
TORCH_MODULE(Mlp);

struct CnnImpl : ::torch::nn::Module {
  ::torch::Tensor forward(::torch::Tensor x) {
    x = ::torch::relu(bn1(conv1(x)));
    x = ::torch::relu(bn2(conv2(x)));
    return fc(::torch::max_pool2d(x, 2).flatten(1));
  }
  ::torch::nn::Conv2d conv1 =
      register_module("conv1", ::torch::nn::Conv2d(::torch::nn::Conv2dOptions(1, 4, 3)));
  ::torch::nn::BatchNorm2d bn1 = register_module("bn1", ::torch::nn::BatchNorm2d(4));
  ::torch::nn::Conv2d conv2 =
      register_module("conv2", ::torch::nn::Conv2d(::torch::nn::Conv2dOptions(4, 6, 3)));
  ::torch::nn::BatchNorm2d bn2 = register_module("bn2", ::torch::nn::BatchNorm2d(6));
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(24, 5));
  // Forward: 9 + 36 + 24, two statistics each over 4·36 and 4·16. Backward: 5 + 54, two sums each
  // over 4·16 and 4·36, and the weight's sum over 4·36.
  static constexpr double kChain = 69 + 2 * (144 + 64) + 59 + 2 * (64 + 144) + 144;
};
TORCH_MODULE(Cnn);

/// Each forward uses one of its heads.
struct TwoHeadsImpl : ::torch::nn::Module {
  ::torch::nn::Linear body = register_module("body", ::torch::nn::Linear(4, 4));
  ::torch::nn::Linear left = register_module("left", ::torch::nn::Linear(4, 1));
  ::torch::nn::Linear right = register_module("right", ::torch::nn::Linear(4, 1));
  ::torch::Tensor forward(::torch::Tensor x, bool use_left) {
    return use_left ? left(body(x)) : right(body(x));
  }
};

/// How far two correctly computed means of gradients may be apart, elementwise.
///
/// With unit roundoff u, adding the N local gradients g_r and dividing costs each side at most N
/// roundings of sums that are at most sum|g_r|: together 2(N + 1)·u·mean|g_r| with `mean_abs` for
/// mean|g_r|. The g_r themselves may differ by instruction set or batching: a chain of dot products
/// of `chain` terms in all is off by chain·u relative to the sum of its absolute terms, on each
/// side; the tensor's largest gradient stands for that sum, but for biases before a BatchNorm, which
/// have none: there `mean_abs` is that sum itself.
inline ::torch::Tensor gradient_bound(int world,
                                      const ::torch::Tensor& mean_abs,
                                      double chain,
                                      double unit) {
  return unit * (2.0 * (world + 1) * mean_abs + 2.0 * chain * mean_abs.max());
}

constexpr double kUnit32 = 0x1p-24;
constexpr double kUnit64 = 0x1p-53;

/// Fills a module with the same moderate values on every rank and platform.
inline void fill(::torch::nn::Module& module, double phase = 0.0) {
  const ::torch::NoGradGuard no_grad;
  for (const auto& parameter : module.parameters()) {
    const auto steps =
        ::torch::arange(parameter.numel(), ::torch::kDouble).reshape(parameter.sizes());
    parameter.copy_(0.4 * ::torch::sin(steps * 0.7 + phase));
    phase += 1.0;
  }
}

/// A batch that depends on rank and step only.
inline ::torch::Tensor batch(::torch::IntArrayRef sizes, int rank, int step = 0) {
  const auto numbers = ::torch::arange(::c10::multiply_integers(sizes), ::torch::kFloat);
  return ::torch::sin(numbers * 1.3 + rank * 5.1 + step * 2.3).reshape(sizes);
}

}  // namespace paceline::tests
