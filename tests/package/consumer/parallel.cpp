// SPDX-License-Identifier: Apache-2.0
// The loop of the README on a small problem: it has to learn, and a failure has to show.
#include <paceline/paceline.h>
#include <paceline/parallel/distributed_data_parallel.h>
#include <paceline/parallel/distributed_sampler.h>
#include <torch/torch.h>

#include <iostream>
#include <optional>

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() { layer = register_module("layer", torch::nn::Linear(4, 1)); }
  torch::Tensor forward(const torch::Tensor& x) { return layer(x); }
  torch::nn::Linear layer{nullptr};
};
TORCH_MODULE(Net);

/// y = the sum of x.
class Sums : public torch::data::Dataset<Sums> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    return {x_[static_cast<std::int64_t>(index)],
            x_[static_cast<std::int64_t>(index)].sum(0, true)};
  }
  std::optional<std::size_t> size() const override { return 64; }

 private:
  torch::Tensor x_ = torch::randn({64, 4});
};

}  // namespace

int main() {
  torch::manual_seed(1);
  paceline::Communicator comm = paceline::init();
  Net net;
  paceline::DistributedDataParallel ddp(
      net, comm, {.bucket_cap_bytes = 25 << 20, .first_bucket_cap_bytes = 1 << 20});
  torch::optim::SGD optimizer(ddp.parameters(), /*lr=*/0.1);
  paceline::DistributedSampler sampler(64, comm.rank(), comm.world_size(),
                                       {.shuffle = true, .seed = 0, .drop_last = false});
  auto loader =
      torch::data::make_data_loader(Sums().map(torch::data::transforms::Stack<>()), sampler,
                                    torch::data::DataLoaderOptions().batch_size(8));
  float last = 1;
  for (int epoch = 0; epoch < 20; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = torch::mse_loss(ddp(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      last = loss.item<float>();
    }
  }
  std::cout << "loss " << last << '\n';
  return last < 1e-3F ? 0 : 1;
}
