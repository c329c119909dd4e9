// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// LabelledImages as a dataset of torch::data: whole batches, made from bytes when they are asked
/// for.

#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fashion_mnist.h"

namespace example {

/// Does not own the images: they must outlive it and all its copies.
class Images : public torch::data::datasets::BatchDataset<Images, torch::data::Example<>> {
 public:
  explicit Images(const LabelledImages& images) : images_(&images) {}

  /// data [batch, 1, 28, 28], with mean 0 and deviation 1 over the training images; target [batch].
  torch::data::Example<> get_batch(torch::ArrayRef<std::size_t> indices) override;

  [[nodiscard]] std::optional<std::size_t> size() const override { return images_->count(); }

 private:
  const LabelledImages* images_;
};

}  // namespace example
