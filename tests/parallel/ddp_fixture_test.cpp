// SPDX-License-Identifier: Apache-2.0
// Gradients against those that PyTorch 2.15's own DistributedDataParallel computed.
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "fixture_support.h"
#include "models.h"
#include "paceline/comm/init.h"
#include "paceline/parallel/distributed_data_parallel.h"

namespace paceline {
namespace {

using tests::compare_step;
using tests::Fixture;
using tests::load_step;

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
