// SPDX-License-Identifier: Apache-2.0
// Gradients against those that PyTorch 2.15's own DistributedDataParallel computed.
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models.h"
#include "paceline/comm/init.h"
#include "paceline/parallel/distributed_data_parallel.h"
#include "tests/fixtures/reader.h"

namespace paceline {
namespace {

using tests::gradient_bound;
using tests::kUnit32;

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

void load_step(::torch::nn::Module& net, const Fixture& fixture, int step) {
  const ::torch::NoGradGuard no_grad;
  for (auto& item : net.named_parameters()) {
    item.value().copy_(fixture.at(step, "parameter/" + item.key()));
  }
  for (auto& item : net.named_buffers()) {
    item.value().copy_(fixture.at(step, "buffer/" + item.key()));
  }
}

void expect_within(const ::torch::Tensor& actual,
                   const ::torch::Tensor& expected,
                   const ::torch::Tensor& bound,
                   const std::string& what) {
  const auto difference = (actual - expected).abs().to(::torch::kDouble);
  EXPECT_TRUE((difference <= bound).all().item<bool>())
      << what << ": off by " << difference.max().item<double>() << ", allowed "
      << bound.max().item<double>();
}

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

template <typename Holder>
void compare_with_pytorch(const std::string& model, int world, double chain) {
  const Fixture fixture("ddp_" + model + "_" + std::to_string(world));
  spawn_ranks(world, [&](Communicator& comm) {
    Holder net;
    DistributedDataParallel ddp(net, comm,
                                {.bucket_cap_bytes = 1024, .first_bucket_cap_bytes = 256});
    const std::string rank = std::to_string(comm.rank());
    for (int step = 0; step < 3; ++step) {
      load_step(*net, fixture, step);
      net->zero_grad();
      const auto output = ddp(fixture.at(step, "input/" + rank));
      ::torch::nn::functional::cross_entropy(output, fixture.at(step, "target/" + rank)).backward();
      // Each rank's running statistics follow its own batch; PyTorch's file holds rank 0's.
      if (comm.rank() == 0) compare_step(net, fixture, step, world, chain);
    }
  });
}

class DdpAgainstPytorch : public ::testing::TestWithParam<int> {};

TEST_P(DdpAgainstPytorch, gives_the_gradients_of_an_mlp) {
  compare_with_pytorch<tests::Mlp>("mlp", GetParam(), tests::MlpImpl::kChain);
}

TEST_P(DdpAgainstPytorch, gives_the_gradients_and_statistics_of_a_cnn_with_batch_norm) {
  compare_with_pytorch<tests::Cnn>("cnn", GetParam(), tests::CnnImpl::kChain);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpAgainstPytorch, ::testing::Values(2, 3, 4));

}  // namespace
}  // namespace paceline
