// SPDX-License-Identifier: Apache-2.0
// SharedSGD: the bits of DDP and of LibTorch's SGD.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "shared_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::Cnn;
using tests::fill;
using tests::flat_gradients;
using tests::flat_parameters;
using tests::Mlp;
using tests::set_gradients;
using tests::Wide;
using tests::with_shared_memory;
using ::torch::Tensor;

::torch::optim::SGDOptions of_torch(const SharedSgdOptions& options) {
  return ::torch::optim::SGDOptions(options.lr)
      .momentum(options.momentum)
      .dampening(options.dampening)
      .weight_decay(options.weight_decay)
      .nesterov(options.nesterov);
}

// Trains the same model both ways and compares after each step.
template <typename Net>
void expect_the_bits_of_ddp(int world,
                            const SharedSgdOptions& options,
                            ::torch::IntArrayRef sizes,
                            at::ScalarType type = at::kFloat) {
  with_shared_memory(world, [&](Communicator& comm) {
    Net of_ddp, of_shared;
    of_ddp->to(type);
    of_shared->to(type);
    fill(*of_ddp);
    fill(*of_shared, comm.rank());  // rank 0's values must win
    DistributedDataParallel ddp(of_ddp, comm);
    ::torch::optim::SGD sgd(ddp.parameters(), of_torch(options));
    SharedSGD shared(of_shared, comm, options);
    for (int step = 0; step < 5; ++step) {
      const Tensor x = batch(sizes, comm.rank(), step).to(type);
      sgd.zero_grad();
      ddp(x).square().mean().backward();
      sgd.step();
      shared.zero_grad();
      of_shared(x).square().mean().backward();
      const Tensor gradients = flat_gradients(*of_shared);
      shared.step();
      ASSERT_TRUE(::torch::equal(flat_parameters(*of_ddp), flat_parameters(*of_shared)))
          << "N = " << world << ", step " << step;
      ASSERT_TRUE(::torch::equal(gradients, flat_gradients(*of_shared))) << "it wrote to .grad";
    }
    EXPECT_EQ(shared.steps(), 5);
  });
}

TEST(SharedSgd, gives_the_bits_of_ddp_and_torch_with_all_options_on_1_to_4_ranks) {
  const SharedSgdOptions all[] = {
      {.lr = 0.1},
      {.lr = 0.1, .weight_decay = 0.01},
      {.lr = 0.1, .momentum = 0.9},
      {.lr = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
      {.lr = 0.05, .momentum = 0.8, .weight_decay = 0.02, .nesterov = true},
  };
  for (const int world : {1, 2, 3, 4}) {
    for (const auto& options : all) expect_the_bits_of_ddp<Cnn>(world, options, {4, 1, 8, 8});
  }
}

TEST(SharedSgd, gives_the_bits_of_ddp_for_doubles) {
  expect_the_bits_of_ddp<Mlp>(3, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}, {4, 12},
                              at::kDouble);
}

TEST(SharedSgd, is_within_its_bound_of_torch_for_16_bit_floats) {
  with_shared_memory(3, [](Communicator& comm) {
    Mlp net;
    net->to(at::kBFloat16);
    fill(*net);
    SharedSGD shared(net, comm, {.lr = 0.1});
    std::vector<Tensor> old;
    for (const auto& parameter : net->parameters()) {
      old.push_back(parameter.detach().clone());
      parameter.mutable_grad() = batch(parameter.sizes(), 0).to(at::kBFloat16);  // = the mean
    }
    shared.step();
    std::size_t i = 0;
    for (const auto& parameter : net->parameters()) {
      old[i].mutable_grad() = parameter.grad();
      ::torch::optim::SGD(std::vector<Tensor>{old[i]}, 0.1).step();
      const Tensor expected = old[i].to(at::kDouble);
      const Tensor bound =
          2 * 0x1p-8 * (expected.abs() + 0.1 * parameter.grad().to(at::kDouble).abs());
      EXPECT_TRUE(((parameter.to(at::kDouble) - expected).abs() <= bound).all().item<bool>());
      ++i;
    }
  });
}

TEST(SharedSgd, gives_the_bits_of_ddp_when_buckets_take_several_rounds_and_move) {
  for (const int world : {1, 2, 3}) {
    expect_the_bits_of_ddp<Wide>(world, {.lr = 0.1, .momentum = 0.9}, {3, 12});
  }
}

// Calls of the gradients in a step of 4 MiB of them.
std::int64_t rounds_of_a_step(int world) {
  std::atomic<std::int64_t> count = 0;
  with_shared_memory(world, [&](Communicator& comm) {
    ::torch::nn::Linear net(::torch::nn::LinearOptions(1024, 1024).bias(false));
    SharedSGD shared(net, comm, {.lr = 0.1, .weight_decay = 0.1});
    net(batch({4, 1024}, comm.rank())).sum().backward();
    comm.start_ledger();
    shared.step();
    for (const auto& call : comm.take_ledger().calls) {
      if (call.label.ends_with(" gradients")) ++count;
    }
  });
  return count / world;
}

TEST(SharedSgd, takes_rounds_of_256_KiB_for_each_rank_and_rank_but_1_MiB_at_most) {
  EXPECT_EQ(rounds_of_a_step(1), 0);  // nobody to meet
  EXPECT_EQ(rounds_of_a_step(2), 4);  // 2 MiB for each, 512 KiB at a time
  EXPECT_EQ(rounds_of_a_step(3), 2);  // 4/3 of 768
  EXPECT_EQ(rounds_of_a_step(4), 1);
  EXPECT_EQ(rounds_of_a_step(8), 1);
}

TEST(SharedSgd, reads_gradients_where_they_lie_if_there_is_one_rank) {
  with_shared_memory(1, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm, {.lr = 0.1, .weight_decay = 0.1});
    std::uint64_t all = 0;
    for (const auto& parameter : net->parameters()) all += parameter.nbytes();
    set_gradients(*net, 0, 0);
    shared.step();
    EXPECT_EQ(shared.gradient_bytes().copied, 0U);
    EXPECT_EQ(shared.gradient_bytes().in_place, all);
    const Tensor weight = net->fc1->weight;
    weight.mutable_grad() = batch({weight.size(1), weight.size(0)}, 0).t();
    shared.step();
    EXPECT_EQ(shared.gradient_bytes().copied, weight.nbytes());
    EXPECT_EQ(shared.gradient_bytes().in_place, all - weight.nbytes());
  });
}

TEST(SharedSgd, follows_rates_of_groups_that_change_between_steps) {
  with_shared_memory(2, [](Communicator& comm) {
    Mlp of_ddp, of_shared;
    fill(*of_ddp);
    fill(*of_shared);
    DistributedDataParallel ddp(of_ddp, comm);
    using Options = ::torch::optim::SGDOptions;
    std::vector<Tensor> biases{of_ddp->fc1->bias, of_ddp->fc2->bias, of_ddp->fc3->bias};
    std::vector<Tensor> weights{of_ddp->fc1->weight, of_ddp->fc2->weight, of_ddp->fc3->weight};
    std::vector<::torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(weights, std::make_unique<Options>(Options(0.1).weight_decay(0.1)));
    groups.emplace_back(biases, std::make_unique<Options>(Options(0.3)));
    ::torch::optim::SGD sgd(groups, Options(0.1));
    SharedSGD shared(of_shared, comm,
                     {.lr = 0.1,
                      .weight_decay = 0.1,
                      .shared = {.groups = {{.parameters = {"fc1.bias", "fc2.bias", "fc3.bias"},
                                             .lr = 0.3,
                                             .weight_decay = 0.0}}}});
    for (int step = 0; step < 4; ++step) {
      const Tensor x = batch({4, 12}, comm.rank(), step);
      sgd.zero_grad();
      ddp(x).square().mean().backward();
      sgd.step();
      shared.zero_grad();
      of_shared(x).square().mean().backward();
      shared.step();
      ASSERT_TRUE(::torch::equal(flat_parameters(*of_ddp), flat_parameters(*of_shared))) << step;
      sgd.param_groups()[1].options().set_lr(0.3 / (step + 2));
      shared.set_lr(1, 0.3 / (step + 2));
    }
    EXPECT_EQ(shared.lr(0), 0.1);
    EXPECT_EQ(shared.lr(1), 0.3 / 5);
    EXPECT_EQ(shared.weight_decay(1), 0.0);
    EXPECT_EQ(shared.group_count(), 2U);
    EXPECT_THROW(shared.set_lr(2, 0.1), UsageError);
    EXPECT_THROW(shared.set_lr(0, -0.1), UsageError);
  });
}

}  // namespace
}  // namespace paceline
