// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/torch/step_models.h"

#include <stdexcept>
#include <string>

#include "examples/03_ddp_fashion_mnist/net.h"

namespace paceline::apps {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kStepClasses = 10;
constexpr std::int64_t kMlpWidth = 2048;
constexpr std::int64_t kVocabulary = 128;
constexpr std::int64_t kGptLength = 64;
constexpr std::int64_t kGptHeads = 4;
constexpr int kGptBlocks = 4;
constexpr int kManyParameters = 500;
constexpr std::int64_t kManyWidth = 1024;  // 4 KiB

struct WideMlp final : Model {
  WideMlp() {
    for (int i = 0; i < 3; ++i) {
      layers->push_back(nn::Linear(kMlpWidth, kMlpWidth));
      layers->push_back(nn::ReLU());
    }
    layers->push_back(nn::Linear(kMlpWidth, kStepClasses));
    register_module("layers", layers);
  }
  torch::Tensor forward(torch::Tensor x) override { return layers->forward(x); }
  nn::Sequential layers;
};

struct ExampleCnn final : Model {
  ExampleCnn() { register_module("net", net); }
  torch::Tensor forward(torch::Tensor x) override { return net(x); }
  example::Net net;
};

/// Pre-norm: attention, then a feed-forward part with GELU.
struct GptBlockImpl : nn::Module {
  GptBlockImpl(std::int64_t width, std::int64_t hidden)
      : norm1(nn::LayerNormOptions({width})),
        norm2(nn::LayerNormOptions({width})),
        qkv(width, 3 * width),
        out(width, width),
        up(width, hidden),
        down(hidden, width) {
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("up", up);
    register_module("down", down);
  }

  torch::Tensor forward(const torch::Tensor& x) {  // [B, T, C] -> [B, T, C]
    const torch::Tensor y = x + attend(norm1(x));
    return y + down(torch::gelu(up(norm2(y))));
  }

  torch::Tensor attend(const torch::Tensor& x) {
    const std::int64_t width = x.size(2);
    const auto heads = qkv(x)
                           .view({x.size(0), x.size(1), 3, kGptHeads, width / kGptHeads})
                           .permute({2, 0, 3, 1, 4})
                           .unbind(0);
    const torch::Tensor mixed = at::scaled_dot_product_attention(
        heads[0], heads[1], heads[2], /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
    return out(mixed.transpose(1, 2).reshape(x.sizes()));
  }

  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, out, up, down;
};
TORCH_MODULE(GptBlock);

/// Mean over positions, then a linear layer; no norm at the end.
struct StepGpt final : Model {
  StepGpt(std::int64_t width, std::int64_t hidden)
      : tokens(kVocabulary, width), positions(kGptLength, width), head(width, kStepClasses) {
    register_module("tokens", tokens);
    register_module("positions", positions);
    for (int i = 0; i < kGptBlocks; ++i) blocks->push_back(GptBlock(width, hidden));
    register_module("blocks", blocks);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) override {  // [B, T] -> [B, classes]
    const torch::Tensor y = tokens(x) + positions(torch::arange(kGptLength));
    return head(blocks->forward(y).mean(1));
  }

  nn::Embedding tokens, positions;
  nn::Sequential blocks;
  nn::Linear head;
};

/// Each parameter scales what passes by.
struct ManyParameters final : Model {
  ManyParameters() {
    for (int i = 0; i < kManyParameters; ++i) {
      scales.push_back(
          register_parameter("scale" + std::to_string(i), 1 + 0.01 * torch::randn({kManyWidth})));
    }
  }
  torch::Tensor forward(torch::Tensor x) override {
    for (const torch::Tensor& scale : scales) x = x * scale;
    return x;
  }
  std::vector<torch::Tensor> scales;
};

std::shared_ptr<Model> make_by_name(const std::string& name) {
  if (name == "mlp") return std::make_shared<WideMlp>();
  if (name == "cnn") return std::make_shared<ExampleCnn>();
  if (name == "gpt") return std::make_shared<StepGpt>(256, 1024);
  if (name == "gpt-wide") return std::make_shared<StepGpt>(512, 2048);
  return std::make_shared<ManyParameters>();
}

}  // namespace

std::shared_ptr<Model> make_step_model(const StepModel& model) {
  auto made = make_by_name(model.name);
  const std::uint64_t count = count_parameters(*made);
  if (count == model.parameters) return made;
  throw std::runtime_error(std::string(model.name) + " has " + std::to_string(count) +
                           " parameters, not " + std::to_string(model.parameters));
}

torch::Tensor make_step_batch(const StepModel& model) {
  const std::string name = model.name;
  if (name == "cnn") return torch::randn({model.batch, 1, 28, 28});
  if (name == "mlp") return torch::randn({model.batch, kMlpWidth});
  if (name == "many") return torch::randn({model.batch, kManyWidth});
  return torch::randint(kVocabulary, {model.batch, kGptLength}, torch::kLong);
}

std::uint64_t count_parameters(const Model& model) {
  std::uint64_t count = 0;
  for (const torch::Tensor& one : model.parameters())
    count += static_cast<std::uint64_t>(one.numel());
  return count;
}

}  // namespace paceline::apps
