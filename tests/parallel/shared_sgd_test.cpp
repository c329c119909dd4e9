// SPDX-License-Identifier: Apache-2.0
// SharedSGD: the bits of DDP and of LibTorch's SGD.
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "paceline/parallel/update_rule.h"
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
  expect_the_bits_of_ddp<Mlp>(3, {.lr = 0.1}, {4, 12}, at::kDouble);
}

TEST(SharedSgd, gives_a_nan_where_ddp_does) {
  with_shared_memory(3, [](Communicator& comm) {
    Mlp of_ddp, of_shared;
    fill(*of_ddp);
    fill(*of_shared);
    DistributedDataParallel ddp(of_ddp, comm);
    ::torch::optim::SGD sgd(ddp.parameters(), 0.1);
    SharedSGD shared(of_shared, comm, {.lr = 0.1});
    for (int step = 0; step < 3; ++step) {
      Tensor x = batch({4, 12}, comm.rank(), step);
      if (comm.rank() == 1 && step == 1) x[2][5] = INFINITY;
      for (const bool with_ddp : {true, false}) {
        Mlp& net = with_ddp ? of_ddp : of_shared;
        net->zero_grad();
        (with_ddp ? ddp(x) : net(x)).square().mean().backward();
      }
      sgd.step();
      shared.step();
      const Tensor a = flat_parameters(*of_ddp), b = flat_parameters(*of_shared);
      ASSERT_EQ(a.isnan().any().item<bool>(), step > 0);
      ASSERT_TRUE(::torch::equal(a.isnan(), b.isnan())) << step;
      ASSERT_TRUE(::torch::equal(a.nan_to_num(0), b.nan_to_num(0))) << step;
    }
  });
}

struct TinyImpl : ::torch::nn::Module {
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(1, 1));
  Tensor forward(const Tensor& x) { return fc(x); }
};
TORCH_MODULE(Tiny);

TEST(SharedSgd, gives_the_bits_of_ddp_to_ranks_without_a_share) {
  expect_the_bits_of_ddp<Tiny>(4, {.lr = 0.1}, {3, 1});
}

TEST(SharedSgd, is_a_scaled_sum_without_momentum_and_decay) {
  const auto plain = [](const auto& options, const GroupRates& rates, Dtype dtype) {
    return make_rule(options)->plain_update(rates, dtype);
  };
  const SharedSgdOptions sgd{.lr = 0.5}, with_momentum{.lr = 0.5, .momentum = 0.9};
  const ScaledAdd f32{.scale = -0.1, .fused = aten_fuses(at::kFloat).value()};
  const ScaledAdd f64{.scale = -0.1, .fused = aten_fuses(at::kDouble).value()};
  EXPECT_EQ(plain(sgd, {0.1, 0}, Dtype::kF32), f32);
  EXPECT_EQ(plain(sgd, {0.1, 0}, Dtype::kF64), f64);
  EXPECT_EQ(plain(sgd, {0.1, 0}, Dtype::kF16), std::nullopt);
  EXPECT_EQ(plain(sgd, {0.1, 0}, Dtype::kBF16), std::nullopt);
  EXPECT_EQ(plain(sgd, {0.1, 0.1}, Dtype::kF32), std::nullopt);
  EXPECT_EQ(plain(sgd, {1e39, 0}, Dtype::kF32), std::nullopt);  // more than a float holds
  EXPECT_TRUE(plain(sgd, {1e39, 0}, Dtype::kF64).has_value());
  EXPECT_EQ(plain(with_momentum, {0.1, 0}, Dtype::kF32), std::nullopt);
  EXPECT_EQ(plain(SharedAdamOptions(), {0.1, 0}, Dtype::kF32), std::nullopt);
}

// All of b as at::add leaves it, with a product that is rounded or not.
template <typename T>
Tensor added_one_by_one(const Tensor& a, const Tensor& b, double scale, bool fused) {
  const Tensor sum = a.clone();
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const T old = a.const_data_ptr<T>()[i], term = b.const_data_ptr<T>()[i];
    const volatile T product = term * static_cast<T>(scale);  // else a compiler may fuse it
    sum.mutable_data_ptr<T>()[i] =
        fused ? std::fma(term, static_cast<T>(scale), old) : product + old;
  }
  return sum;
}

TEST(SharedSgd, knows_how_aten_rounds_a_scaled_sum) {
  for (std::int64_t count = 1; count < 300; ++count) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      const Tensor a = batch({count}, 0).to(type) / 3, b = batch({count}, 1).to(type) / 7;
      const auto fused = aten_fuses(type);
      ASSERT_TRUE(fused.has_value());
      const auto one_by_one =
          type == at::kFloat ? &added_one_by_one<float> : &added_one_by_one<double>;
      ASSERT_TRUE(::torch::equal(at::add(a, b, -0.1), one_by_one(a, b, -0.1, *fused))) << count;
    }
  }
  EXPECT_FALSE(aten_fuses(at::kHalf).has_value());
  EXPECT_FALSE(aten_fuses(at::kBFloat16).has_value());
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
    expect_the_bits_of_ddp<Wide>(world, {.lr = 0.1}, {3, 12});
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

// Biases and weights of a round have rates of their own, which change.
void expect_the_bits_of_ddp_with_groups(Communicator& comm, double weight_decay) {
  Mlp of_ddp, of_shared;
  fill(*of_ddp);
  fill(*of_shared);
  DistributedDataParallel ddp(of_ddp, comm);
  using Options = ::torch::optim::SGDOptions;
  std::vector<Tensor> biases{of_ddp->fc1->bias, of_ddp->fc2->bias, of_ddp->fc3->bias};
  std::vector<Tensor> weights{of_ddp->fc1->weight, of_ddp->fc2->weight, of_ddp->fc3->weight};
  std::vector<::torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(weights, std::make_unique<Options>(Options(0.1).weight_decay(weight_decay)));
  groups.emplace_back(biases, std::make_unique<Options>(Options(0.3)));
  ::torch::optim::SGD sgd(groups, Options(0.1));
  SharedSGD shared(of_shared, comm,
                   {.lr = 0.1,
                    .weight_decay = weight_decay,
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
    const double rate = step == 1 ? 0.1 : 0.3 / (step + 2);  // 0.1: all have the same
    sgd.param_groups()[1].options().set_lr(rate);
    shared.set_lr(1, rate);
  }
  EXPECT_EQ(shared.lr(0), 0.1);
  EXPECT_EQ(shared.lr(1), 0.3 / 5);
  EXPECT_EQ(shared.weight_decay(1), 0.0);
  EXPECT_EQ(shared.group_count(), 2U);
  EXPECT_THROW(shared.set_lr(2, 0.1), UsageError);
  EXPECT_THROW(shared.set_lr(0, -0.1), UsageError);
}

TEST(SharedSgd, follows_rates_of_groups_that_change_between_steps) {
  for (const int world : {2, 4}) {  // of 4 ranks some have shares of one group only
    with_shared_memory(world, [](Communicator& comm) {
      expect_the_bits_of_ddp_with_groups(comm, 0.1);
      expect_the_bits_of_ddp_with_groups(comm, 0);
    });
  }
}

TEST(SharedSgd, gives_the_same_bits_by_another_algorithm) {
  spawn_ranks(3, [](Communicator& comm) { expect_the_bits_of_ddp_with_groups(comm, 0); },
              {.link = LocalLink::kShm, .algorithm = Algorithm::kRing});
}

}  // namespace
}  // namespace paceline
