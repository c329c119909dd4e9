// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What PyTorch computed, as tensors, step by step.

#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models.h"
#include "tests/fixtures/reader.h"

namespace paceline::tests {

class Fixture {
 public:
  explicit Fixture(const std::string& name)
      : arrays_(fixtures::read(std::string(PACELINE_FIXTURES) + "/" + name + ".bin")) {}

  ::torch::Tensor at(int step, const std::string& what) const {
    const auto& array = arrays_.at(std::to_string(step) + "/" + what);
    if (!array.ints.empty()) return ::torch::tensor(array.ints).reshape(array.sizes);
    return ::torch::tensor(array.floats).reshape(array.sizes);
  }

 private:
  fixtures::Arrays arrays_;
};

inline void load_step(::torch::nn::Module& net, const Fixture& fixture, int step) {
  const ::torch::NoGradGuard no_grad;
  for (auto& item : net.named_parameters()) {
    item.value().copy_(fixture.at(step, "parameter/" + item.key()));
  }
  for (auto& item : net.named_buffers()) {
    item.value().copy_(fixture.at(step, "buffer/" + item.key()));
  }
}

inline void expect_within(const ::torch::Tensor& actual,
                          const ::torch::Tensor& expected,
                          const ::torch::Tensor& bound,
                          const std::string& what) {
  const auto difference = (actual - expected).abs().to(::torch::kDouble);
  EXPECT_TRUE((difference <= bound).all().item<bool>())
      << what << ": off by " << difference.max().item<double>() << ", allowed "
      << bound.max().item<double>();
}

/// Gradients and buffers against those of the fixture, which sums over `world` parts.
template <typename Holder>
void compare_step(Holder& net, const Fixture& fixture, int step, int world, double chain) {
  for (auto& item : net->named_parameters()) {
    const auto mean_abs = fixture.at(step, "size/" + item.key()).to(::torch::kDouble);
    expect_within(item.value().grad(), fixture.at(step, "gradient/" + item.key()),
                  gradient_bound(world, mean_abs, chain, kUnit32),
                  std::to_string(step) + " " + item.key());
  }
  for (auto& item : net->named_buffers()) {
    const auto expected = fixture.at(step, "buffer_after/" + item.key());
    const auto bound = 2 * chain * kUnit32 * expected.abs().max().to(::torch::kDouble);
    expect_within(item.value(), expected, bound, std::to_string(step) + " " + item.key());
  }
}

}  // namespace paceline::tests
