// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The models that are trained. Only LibTorch files include this.

#include <torch/torch.h>

#include <memory>
#include <string>

namespace paceline::apps {

/// One tensor in, scores out: [batch, ..., classes].
struct Model : torch::nn::Module {
  virtual torch::Tensor forward(torch::Tensor x) = 0;
};

/// "cnn", "mlp" or "gpt" with its own random parameters; `classes` is the vocabulary of gpt.
[[nodiscard]] std::shared_ptr<Model> make_model(const std::string& name, std::int64_t classes);

/// For people.
[[nodiscard]] std::string description_of(const std::string& name);

/// Mean cross entropy over all samples, and over all characters of a sequence.
[[nodiscard]] torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& target);

}  // namespace paceline::apps
