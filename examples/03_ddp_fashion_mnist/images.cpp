// SPDX-License-Identifier: Apache-2.0
#include "images.h"

namespace example {
namespace {

/// What each of the 256 values of a pixel becomes. Mean and deviation are those of the 60,000
/// training images.
std::array<float, 256> make_table() {
  constexpr float kMean = 0.2860F;
  constexpr float kDeviation = 0.3530F;
  std::array<float, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = (static_cast<float>(i) / 255.0F - kMean) / kDeviation;
  }
  return table;
}

}  // namespace

torch::data::Example<> Images::get_batch(torch::ArrayRef<std::size_t> indices) {
  static const std::array<float, 256> kTable = make_table();
  const auto count = static_cast<std::int64_t>(indices.size());
  constexpr auto side = static_cast<std::int64_t>(kSide);
  torch::Tensor data = torch::empty({count, 1, side, side}, torch::kFloat);
  torch::Tensor target = torch::empty({count}, torch::kLong);
  auto* value = data.mutable_data_ptr<float>();
  auto* label = target.mutable_data_ptr<std::int64_t>();
  for (const std::size_t index : indices) {
    const std::uint8_t* pixel = images_->pixels.data() + index * kPixels;
    for (std::size_t i = 0; i < kPixels; ++i) *value++ = kTable[pixel[i]];
    *label++ = images_->labels[index];
  }
  return {data, target};
}

}  // namespace example
