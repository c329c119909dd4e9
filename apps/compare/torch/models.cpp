// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/torch/models.h"

#include <stdexcept>

#include "apps/compare/text_source.h"
#include "examples/03_ddp_fashion_mnist/net.h"

namespace paceline::apps {
namespace {

namespace nn = torch::nn;

struct Cnn final : Model {
  Cnn() { register_module("net", net); }
  torch::Tensor forward(torch::Tensor x) override { return net(x); }
  example::Net net;
};

struct Mlp final : Model {
  explicit Mlp(std::int64_t classes)
      : layers(nn::Flatten(),
               nn::Linear(28 * 28, 512),
               nn::ReLU(),
               nn::Linear(512, 512),
               nn::ReLU(),
               nn::Linear(512, classes)) {
    register_module("layers", layers);
  }
  torch::Tensor forward(torch::Tensor x) override { return layers->forward(x); }
  nn::Sequential layers;
};

// T characters, C channels, H heads.
constexpr std::int64_t kT = kContext;
constexpr std::int64_t kC = 128;
constexpr std::int64_t kH = 4;
constexpr int kBlocks = 2;

/// Attention, then a small network on each character; both add to what passes by.
struct BlockImpl : nn::Module {
  BlockImpl()
      : norm1(nn::LayerNormOptions({kC})),
        norm2(nn::LayerNormOptions({kC})),
        qkv(kC, 3 * kC),
        projection(kC, kC),
        widen(kC, 4 * kC),
        narrow(4 * kC, kC) {
    register_module("norm1", norm1);
    register_module("qkv", qkv);
    register_module("projection", projection);
    register_module("norm2", norm2);
    register_module("widen", widen);
    register_module("narrow", narrow);
  }

  torch::Tensor forward(const torch::Tensor& x) {  // [B, T, C] -> [B, T, C]
    const torch::Tensor y = x + attend(norm1(x));
    return y + narrow(torch::gelu(widen(norm2(y))));
  }

  torch::Tensor attend(const torch::Tensor& x) {
    const std::int64_t batch = x.size(0);
    const std::int64_t length = x.size(1);
    const auto parts = qkv(x).view({batch, length, 3, kH, kC / kH}).permute({2, 0, 3, 1, 4});
    const torch::Tensor y = at::scaled_dot_product_attention(
        parts[0], parts[1], parts[2], /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
    return projection(y.transpose(1, 2).reshape({batch, length, kC}));
  }

  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, projection, widen, narrow;
};
TORCH_MODULE(Block);

struct Gpt final : Model {
  explicit Gpt(std::int64_t vocabulary)
      : characters(vocabulary, kC),
        places(kT, kC),
        norm(nn::LayerNormOptions({kC})),
        head(kC, vocabulary) {
    register_module("characters", characters);
    register_module("places", places);
    for (int i = 0; i < kBlocks; ++i) blocks->push_back(Block());
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) override {  // [B, T] -> [B, T, vocabulary]
    torch::Tensor y = characters(x) + places(torch::arange(x.size(1), x.device()));
    return head(norm(blocks->forward(y)));
  }

  nn::Embedding characters, places;
  nn::Sequential blocks;
  nn::LayerNorm norm;
  nn::Linear head;
};

}  // namespace

std::shared_ptr<Model> make_model(const std::string& name, std::int64_t classes) {
  if (name == "cnn") return std::make_shared<Cnn>();
  if (name == "mlp") return std::make_shared<Mlp>(classes);
  if (name == "gpt") return std::make_shared<Gpt>(classes);
  throw std::invalid_argument("there is no model '" + name + "'");
}

std::string description_of(const std::string& name) {
  if (name == "cnn") return "two convolutions and two linear layers";
  if (name == "mlp") return "three linear layers";
  return "a GPT of two blocks that reads 64 characters";
}

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& target) {
  return nn::functional::cross_entropy(scores.flatten(0, -2), target.flatten());
}

}  // namespace paceline::apps
