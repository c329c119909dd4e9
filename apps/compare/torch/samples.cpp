// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/torch/samples.h"

#include <utility>

#include "apps/compare/text_source.h"
#include "examples/03_ddp_fashion_mnist/fashion_mnist.h"
#include "examples/03_ddp_fashion_mnist/images.h"

namespace paceline::apps {
namespace {

class ImageSamples final : public Samples {
 public:
  explicit ImageSamples(example::FashionMnist data)
      : data_(std::move(data)), images_(data_.train) {}

  torch::data::Example<> batch(const std::vector<std::size_t>& indices) override {
    return images_.get_batch(indices);
  }
  std::size_t count() const override { return data_.train.count(); }
  std::int64_t classes() const override { return example::kClasses; }
  std::string name() const override { return "Fashion-MNIST"; }
  std::string unit() const override { return "images"; }

 private:
  example::FashionMnist data_;
  example::Images images_;
};

class TextSamples final : public Samples {
 public:
  explicit TextSamples(TextSource source) : source_(std::move(source)) {}

  torch::data::Example<> batch(const std::vector<std::size_t>& indices) override {
    const auto count = static_cast<std::int64_t>(indices.size());
    const auto length = static_cast<std::int64_t>(kContext);
    torch::Tensor data = torch::empty({count, length}, torch::kLong);
    torch::Tensor target = torch::empty({count, length}, torch::kLong);
    auto* in = data.mutable_data_ptr<std::int64_t>();
    auto* out = target.mutable_data_ptr<std::int64_t>();
    for (const std::size_t first : indices) {
      for (std::size_t i = 0; i < kContext; ++i) {
        *in++ = source_.characters[first + i];
        *out++ = source_.characters[first + i + 1];
      }
    }
    return {data, target};
  }
  std::size_t count() const override { return source_.count(); }
  std::int64_t classes() const override { return source_.vocabulary; }
  std::string name() const override { return source_.name; }
  std::string unit() const override { return "sequences"; }

 private:
  TextSource source_;
};

}  // namespace

std::unique_ptr<Samples> read_samples(const TrainingSettings& settings) {
  if (settings.model == "gpt") {
    return std::make_unique<TextSamples>(
        read_text(settings.text, static_cast<std::size_t>(settings.batch_size)));
  }
  return std::make_unique<ImageSamples>(
      example::read_fashion_mnist(example::find_fashion_mnist(settings.data)));
}

}  // namespace paceline::apps
