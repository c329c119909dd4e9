// SPDX-License-Identifier: Apache-2.0
// DataParallel's numbers: against one device, the same parts in turn, PyTorch's definition, and
// from run to run; and the modes under which replicas compute.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "data_parallel_support.h"
#include "fixture_support.h"

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
using tests::threads_of_a_new_thread;
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
    EXPECT_LT(flat_gradients(net->parameters()).abs().max().template item<double>(), 1.0);
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

INSTANTIATE_TEST_SUITE_P(Devices, DataParallelSteps, ::testing::Values(1, 2, 3, 8));

class DataParallelAgainstPytorch : public ::testing::TestWithParam<int> {};

template <typename Holder>
void compare_with_pytorch(const std::string& model, int devices, double chain) {
  const tests::Fixture fixture("dp_" + model + "_" + std::to_string(devices));
  Holder net;
  DataParallel dp(net, cpu_devices(devices), make<Holder>);
  for (int step = 0; step < 3; ++step) {
    tests::load_step(*net, fixture, step);
    net->zero_grad();
    const Tensor output = dp(fixture.at(step, "input"));
    const Tensor expected = fixture.at(step, "output");
    tests::expect_within(output, expected,
                         2 * chain * tests::kUnit32 * expected.abs().max().to(::torch::kDouble),
                         std::to_string(step) + " output");
    functional::cross_entropy(output, fixture.at(step, "target")).backward();
    tests::compare_step(net, fixture, step, devices, chain);
  }
}

TEST_P(DataParallelAgainstPytorch, gives_the_gradients_of_an_mlp) {
  compare_with_pytorch<Mlp>("mlp", GetParam(), tests::MlpImpl::kChain);
}

TEST_P(DataParallelAgainstPytorch, gives_the_gradients_and_statistics_of_a_cnn_with_batch_norm) {
  compare_with_pytorch<Cnn>("cnn", GetParam(), tests::CnnImpl::kChain);
}

INSTANTIATE_TEST_SUITE_P(Devices, DataParallelAgainstPytorch, ::testing::Values(2, 3, 4));

TEST(DataParallel, gives_the_same_bits_on_every_run) {
  std::vector<Tensor> results;
  for (int run = 0; run < 3; ++run) {
    Cnn net;
    fill(*net);
    DataParallel dp(net, cpu_devices(4), make<Cnn>);
    ::torch::optim::SGD optimizer(dp.parameters(), 0.05);
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      const Tensor x = batch({13, 1, 8, 8}, 0, step);
      functional::cross_entropy(dp(x), classes(13, step)).backward();
      optimizer.step();
    }
    results.push_back(flat(net->parameters()));
  }
  EXPECT_TRUE(::torch::equal(results[0], results[1]));
  EXPECT_TRUE(::torch::equal(results[0], results[2]));
}

// Calls `inside` in its forward, and waits for the other replicas there if it is to meet them.
struct ObservedImpl : ::torch::nn::Module {
  explicit ObservedImpl(std::function<void()> call = {}) : inside(std::move(call)) {}
  Tensor forward(Tensor x) {
    inside();
    return fc(x);
  }
  std::function<void()> inside;
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(4, 3));
};
TORCH_MODULE(Observed);

auto observed(std::function<void()> inside, int devices, DataParallelOptions options = {}) {
  const auto make_one = [inside = std::move(inside)] { return Observed(inside); };
  return DataParallel(make_one(), cpu_devices(devices), make_one, options);
}

TEST(DataParallel, runs_the_forwards_of_all_replicas_at_the_same_time) {
  std::barrier meeting(3);  // would wait for ever if they came one after the other
  auto dp = observed([&] { meeting.arrive_and_wait(); }, 3);
  EXPECT_EQ(dp(batch({6, 4}, 0)).size(0), 6);
}

struct MeetsInBackwardImpl : ::torch::nn::Module {
  explicit MeetsInBackwardImpl(std::barrier<>* at) : meeting(at) {}
  Tensor forward(Tensor x) {
    const Tensor y = fc(x);
    y.register_hook([this](const Tensor&) { meeting->arrive_and_wait(); });
    return y * 2;
  }
  std::barrier<>* meeting;
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(4, 3));
};

TEST(DataParallel, runs_the_backwards_of_all_replicas_at_the_same_time) {
  std::barrier<> meeting(3);
  const auto make_one = [&] { return std::make_shared<MeetsInBackwardImpl>(&meeting); };
  DataParallel dp(make_one(), cpu_devices(3), make_one);
  dp(batch({6, 4}, 0)).sum().backward();
  EXPECT_EQ(dp.statistics().backwards, 1U);
}

TEST(DataParallel, takes_over_grad_mode_inference_mode_and_autocast_in_every_replica) {
  struct Modes {
    bool grad, inference, autocast;
    bool operator==(const Modes&) const = default;
  };
  std::mutex mutex;
  std::vector<Modes> seen;
  auto dp = observed(
      [&] {
        const std::lock_guard lock(mutex);
        seen.push_back({::torch::GradMode::is_enabled(), ::torch::InferenceMode::is_enabled(),
                        at::autocast::is_autocast_enabled(at::kCPU)});
      },
      3);
  const auto expect_modes = [&](const Modes& modes) {
    EXPECT_EQ(seen, std::vector<Modes>(3, modes));
    seen.clear();
  };
  const Tensor x = batch({6, 4}, 0);
  EXPECT_TRUE(dp(x).requires_grad());
  expect_modes({true, false, false});
  {
    const ::torch::NoGradGuard no_grad;
    EXPECT_FALSE(dp(x).requires_grad());
    expect_modes({false, false, false});
  }
  {
    const ::torch::InferenceMode inference;
    EXPECT_TRUE(dp(x).is_inference());
    expect_modes({false, true, false});
  }
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Tensor y = dp(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(y.scalar_type(), ::torch::kBFloat16);
  expect_modes({true, false, true});
  y.to(::torch::kFloat).sum().backward();
  EXPECT_EQ(dp->fc->weight.grad().scalar_type(), ::torch::kFloat);
  EXPECT_TRUE(dp(x).requires_grad());  // nothing of it stays on the threads
  expect_modes({true, false, false});
}

TEST(DataParallel, gives_each_replica_its_share_of_threads_and_leaves_others_alone) {
  const int before = at::get_num_threads(), of_others = threads_of_a_new_thread();
  at::set_num_threads(6);
  const int set = threads_of_a_new_thread();
  std::mutex mutex;
  std::vector<int> seen;
  const auto note = [&] {
    const std::lock_guard lock(mutex);
    seen.push_back(at::get_num_threads());
  };
  auto two = observed(note, 2);
  auto eight = observed(note, 8);
  EXPECT_EQ(at::get_num_threads(), 6);
  EXPECT_EQ(threads_of_a_new_thread(), set);
  two(batch({8, 4}, 0));
  EXPECT_EQ(std::exchange(seen, {}), std::vector<int>(2, 3));
  eight(batch({8, 4}, 0));
  EXPECT_EQ(seen, std::vector<int>(8, 1));
  at::set_num_threads(before);
  EXPECT_EQ(threads_of_a_new_thread(), of_others);
}

TEST(DataParallel, leaves_the_random_number_generator_as_it_was) {
  const auto generator = at::detail::getDefaultCPUGenerator();
  Small net;
  const Tensor before = generator.get_state();
  DataParallel cloned(net, cpu_devices(3));
  EXPECT_TRUE(::torch::equal(generator.get_state(), before));
  DataParallel made(net, cpu_devices(3), make<Small>);
  EXPECT_TRUE(::torch::equal(generator.get_state(), before));
  made(batch({6, 4}, 0)).sum().backward();
  EXPECT_TRUE(::torch::equal(generator.get_state(), before));
  EXPECT_FALSE(::torch::equal((::torch::rand(1), generator.get_state()), before));
}

TEST(DataParallel, repeats_the_patterns_of_dropout_in_device_order) {
  ::torch::nn::Sequential net(::torch::nn::Linear(4, 64), ::torch::nn::Dropout(0.5));
  DataParallel dp(net, cpu_devices(3), {.forward_order = ForwardOrder::kDeviceOrder});
  const Tensor x = batch({6, 4}, 0);
  std::vector<Tensor> in_turn;
  ::torch::manual_seed(5);
  for (const auto& part : x.chunk(3)) in_turn.push_back(net->forward(part));
  for (int run = 0; run < 5; ++run) {
    ::torch::manual_seed(5);
    ASSERT_TRUE(::torch::equal(dp(x), ::torch::cat(in_turn)));
  }
  EXPECT_FALSE(::torch::equal(dp(x), ::torch::cat(in_turn)));  // another seed, other patterns
  net->eval();
  EXPECT_TRUE(::torch::equal(dp(x), dp(x)));  // eval mode reaches all replicas
}

TEST(DataParallel, lets_a_nan_through_to_outputs_and_gradients) {
  Small net;
  DataParallel dp(net, cpu_devices(2));
  Tensor x = batch({4, 4}, 0);
  x[3][0] = std::nan("");
  const Tensor y = dp(x);
  EXPECT_TRUE(::torch::equal(y.isnan().any(1), ::torch::tensor({false, false, false, true})));
  y.sum().backward();
  EXPECT_TRUE(net->head->weight.grad().isnan().all().item<bool>());
}

TEST(DataParallel, makes_replicas_once_and_refreshes_their_values) {
  int made = 0;
  Small net;
  DataParallel dp(net, cpu_devices(4), [&] {
    ++made;
    return Small();
  });
  const Tensor x = batch({8, 4}, 0);
  for (int step = 0; step < 3; ++step) {
    fill(*net, step);
    net->head->bias.data().add_(1);  // unseen by version counters
    ASSERT_TRUE(tests::close(dp(x), net(x)));
  }
  EXPECT_EQ(made, 3);
}

struct MixedImpl : ::torch::nn::Module {
  Tensor forward(Tensor x) { return second(first(x).to(::torch::kDouble)).to(::torch::kFloat); }
  ::torch::nn::Linear first = register_module("first", ::torch::nn::Linear(4, 4));
  ::torch::nn::Linear second = register_module("second", ::torch::nn::Linear(4, 2));
};

TEST(DataParallel, takes_parameters_of_several_types_and_strides) {
  auto net = std::make_shared<MixedImpl>(), plain = std::make_shared<MixedImpl>();
  for (const auto& module : {net, plain}) {
    module->second->to(::torch::kDouble);
    module->first->weight.set_data(::torch::empty({4, 4}).t());
    fill(*module);
  }
  DataParallel dp(net, cpu_devices(2), [] { return std::make_shared<MixedImpl>(); });
  const Tensor x = batch({4, 4}, 0);
  dp(x).sum().backward();
  plain->forward(x).sum().backward();
  for (const auto& item : plain->named_parameters()) {
    const Tensor gradient = net->named_parameters()[item.key()].grad();
    EXPECT_EQ(gradient.scalar_type(), item.value().scalar_type());
    EXPECT_TRUE(tests::close(gradient, item.value().grad())) << item.key();
  }
}

TEST(DataParallel, can_be_moved_and_counts_its_steps) {
  Small net;
  DataParallel first(net, cpu_devices(2));
  DataParallel dp = std::move(first);
  EXPECT_EQ(dp.module(), net.ptr());
  EXPECT_EQ(dp->head.ptr(), net->head.ptr());
  EXPECT_EQ(dp.parameters().size(), 4U);
  EXPECT_EQ(dp.devices(), cpu_devices(2));
  dp(batch({4, 4}, 0)).sum().backward();
  dp(batch({4, 4}, 0));
  EXPECT_EQ(dp.statistics().forwards, 2U);
  EXPECT_EQ(dp.statistics().backwards, 1U);
}

}  // namespace
}  // namespace paceline
