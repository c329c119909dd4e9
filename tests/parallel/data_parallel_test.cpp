// SPDX-License-Identifier: Apache-2.0
// DataParallel's numbers: against one device, against the same parts in turn, from run to run.
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "data_parallel_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::classes;
using tests::Cnn;
using tests::fill;
using tests::flat;
using tests::flat_gradients;
using tests::kUnit64;
using tests::make;
using tests::Mlp;
using tests::PartsInTurn;
using tests::PlainCnn;
using tests::Small;
using ::torch::Tensor;
namespace functional = ::torch::nn::functional;

constexpr int kSteps = 50;

template <typename Holder>
Tensor parameters_after_training(Holder net,
                                 const std::vector<std::int64_t>& shape,
                                 const std::function<Tensor(const Tensor&)>& forward) {
  ::torch::optim::SGD optimizer(net->parameters(), 0.05);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Tensor x = batch(shape, 0, step).to(::torch::kDouble);
    functional::cross_entropy(forward(x), classes(shape[0], step)).backward();
    optimizer.step();
  }
  return flat(net->parameters());
}

template <typename Holder>
Holder filled(double phase = 0.0) {
  Holder net;
  net->to(::torch::kDouble);
  fill(*net, phase);
  return net;
}

// How far two trainings may be apart after kSteps steps. In each step gradients may differ by a
// chain of dot products on each side, 2·chain·u relative to the largest gradient, which stays below
// 1 here; lr times that enters the parameters. What has entered grows as a difference of the start
// does: by the factor that a training from a start elsewhere by 2^-20 shows, taken 8 times.
template <typename Holder>
void expect_one_device(int devices, const std::vector<std::int64_t>& shape, double chain) {
  Holder plain = filled<Holder>(), moved = filled<Holder>(), net = filled<Holder>();
  {
    const ::torch::NoGradGuard no_grad;
    for (auto& parameter : moved->parameters()) parameter.add_(0x1p-20);
  }
  DataParallel dp(net, cpu_devices(devices), make<Holder>);
  const Tensor expected = parameters_after_training(plain, shape, [&](auto x) { return plain(x); });
  const Tensor elsewhere =
      parameters_after_training(moved, shape, [&](auto x) { return moved(x); });
  const Tensor actual = parameters_after_training(net, shape, [&](auto x) { return dp(x); });
  const double growth = (elsewhere - expected).abs().max().item<double>() * 0x1p20;
  const double bound = kSteps * 0.05 * 2 * chain * kUnit64 * 8 * std::max(growth, 1.0);
  ASSERT_LT(bound, 1e-9);
  EXPECT_LE((actual - expected).abs().max().item<double>(), bound);
  const Tensor start = flat(filled<Holder>()->parameters());
  EXPECT_GT((expected - start).abs().max().item<double>(), 1e-2);
}

class DataParallelSteps : public ::testing::TestWithParam<int> {};

TEST_P(DataParallelSteps, equal_those_of_one_device_for_an_mlp) {
  expect_one_device<Mlp>(GetParam(), {13, 12}, 13.0 / 4 * tests::MlpImpl::kChain);
}

TEST_P(DataParallelSteps, equal_those_of_one_device_for_a_cnn) {
  expect_one_device<PlainCnn>(GetParam(), {13, 1, 8, 8}, 13.0 / 4 * tests::PlainCnnImpl::kChain);
}

TEST_P(DataParallelSteps, of_a_cnn_with_batch_norm_have_the_bits_of_the_same_parts_in_turn) {
  const auto devices = static_cast<std::size_t>(GetParam());
  Cnn net, reference;
  fill(*net);
  fill(*reference);
  DataParallel dp(net, cpu_devices(GetParam()), make<Cnn>);
  PartsInTurn<Cnn> in_turn(reference, devices);
  ::torch::optim::SGD of_net(net->parameters(), 0.05), of_reference(reference->parameters(), 0.05);
  for (int step = 0; step < kSteps; ++step) {
    const Tensor x = batch({13, 1, 8, 8}, 0, step), y = classes(13, step);
    of_net.zero_grad();
    const auto loss = functional::cross_entropy(dp(x), y);
    loss.backward();
    const auto loss_of = [&](const Tensor& output) { return functional::cross_entropy(output, y); };
    ASSERT_TRUE(::torch::equal(loss, in_turn.step(x, loss_of)));
    ASSERT_TRUE(
        ::torch::equal(flat_gradients(net->parameters()), flat_gradients(reference->parameters())));
    of_net.step();
    of_reference.step();
    for (const auto& item : reference->named_buffers()) {
      ASSERT_TRUE(::torch::equal(item.value(), net->named_buffers()[item.key()])) << item.key();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DataParallelSteps, ::testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace paceline
