// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the tests of shared optimizers have in common.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "ddp_support.h"
#include "paceline/parallel/shared_optimizer.h"

namespace paceline::tests {

inline void with_shared_memory(int world, const std::function<void(Communicator&)>& body) {
  spawn_ranks(world, body, {.link = LocalLink::kShm, .window_bytes = 128 << 20});
}

// What each rank throws; "" where nothing was thrown.
template <typename Error>
std::vector<std::string> shared_errors(int world, const std::function<void(Communicator&)>& body) {
  return errors_of<Error>(world, body, {.link = LocalLink::kShm, .window_bytes = 128 << 20});
}

// Reads the whole state back from what save() writes.
class Saved {
 public:
  explicit Saved(const SharedOptimizer& optimizer) {
    ::torch::serialize::OutputArchive out;
    optimizer.save(out);
    out.save_to(stream_);
    archive.load_from(stream_);
  }
  ::torch::Tensor operator()(const std::string& key) {
    ::torch::Tensor value;
    archive.read(key, value, /*is_buffer=*/true);
    return value;
  }
  ::torch::serialize::InputArchive archive;

 private:
  std::stringstream stream_;
};

inline void set_gradients(::torch::nn::Module& net, int rank, int step) {
  for (const auto& parameter : net.parameters()) {
    parameter.mutable_grad() =
        (batch(parameter.sizes(), rank, step) * 0.1).to(parameter.scalar_type());
  }
}

template <typename Net>
void train_step(Net& net, SharedOptimizer& optimizer, ::torch::IntArrayRef sizes, int rank, int k) {
  optimizer.zero_grad();
  net(batch(sizes, rank, k)).square().mean().backward();
  optimizer.step();
}

// Several buckets and several rounds in one of them; the order of arrival is not that of the
// registration, so the layout changes after the first step.
struct WideImpl : ::torch::nn::Module {
  ::torch::nn::Linear last = register_module("last", ::torch::nn::Linear(1111, 3));
  ::torch::nn::Linear first = register_module("first", ::torch::nn::Linear(12, 1001));
  ::torch::nn::Linear middle = register_module("middle", ::torch::nn::Linear(1001, 1111));
  ::torch::Tensor forward(const ::torch::Tensor& x) {
    return last(::torch::tanh(middle(::torch::tanh(first(x)))));
  }
};
TORCH_MODULE(Wide);

// Its gradient takes a block of memory that ranks share.
struct SquareImpl : ::torch::nn::Module {
  static constexpr std::int64_t kSide = 160;
  static constexpr std::size_t kBlock = kSide * kSide * sizeof(float);
  ::torch::nn::Linear fc = register_module(
      "fc", ::torch::nn::Linear(::torch::nn::LinearOptions(kSide, kSide).bias(false)));
  ::torch::Tensor forward(const ::torch::Tensor& x) { return fc(x); }
};
TORCH_MODULE(Square);

}  // namespace paceline::tests
