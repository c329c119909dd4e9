// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the models are trained on. Only LibTorch files include this.

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "apps/compare/record.h"

namespace paceline::apps {

class Samples {
 public:
  Samples() = default;
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;
  virtual ~Samples() = default;
  [[nodiscard]] virtual torch::data::Example<> batch(const std::vector<std::size_t>& indices) = 0;
  [[nodiscard]] virtual std::size_t count() const = 0;
  [[nodiscard]] virtual std::int64_t classes() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string unit() const = 0;
};

/// Images for cnn and mlp, text for gpt.
///
/// Errors  As read_fashion_mnist() and read_text().
[[nodiscard]] std::unique_ptr<Samples> read_samples(const TrainingSettings& settings);

}  // namespace paceline::apps
