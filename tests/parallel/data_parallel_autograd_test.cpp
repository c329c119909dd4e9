// SPDX-License-Identifier: Apache-2.0
// DataParallel as a part of the user's autograd graph: what reaches whom, how often, and what is
// refused.
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "data_parallel_support.h"
#include "paceline/parallel/batch_split.h"

namespace paceline {
namespace {

using tests::batch;
using tests::classes;
using tests::error_of;
using tests::expect_contains;
using tests::fill;
using tests::flat;
using tests::flat_gradients;
using tests::Small;
using ::torch::Tensor;
namespace functional = ::torch::nn::functional;

// A net and the same net without the wrapper.
struct Pair {
  explicit Pair(int devices, DataParallelOptions options = {})
      : dp(net, cpu_devices(devices), options) {
    fill(*net);
    fill(*plain);
  }
  void expect_equal_gradients() const {
    for (const auto& item : plain->named_parameters()) {
      const Tensor actual = net->named_parameters()[item.key()].grad();
      ASSERT_EQ(actual.defined(), item.value().grad().defined()) << item.key();
      if (!actual.defined()) continue;
      EXPECT_TRUE(tests::close(actual, item.value().grad())) << item.key();
    }
  }
  Small net, plain;
  DataParallel<tests::SmallImpl> dp;
};

const Tensor kX = batch({6, 4}, 0);

TEST(DataParallelGraph, accumulates_gradients_as_usual) {
  Pair pair(3);
  for (int step = 0; step < 3; ++step) {
    const Tensor x = batch({6, 4}, 0, step);
    pair.dp(x).square().mean().backward();
    pair.plain(x).square().mean().backward();
    pair.expect_equal_gradients();
  }
}

TEST(DataParallelGraph, serves_several_forwards_before_one_backward) {
  Pair pair(2);
  const Tensor other = batch({4, 4}, 1);
  (pair.dp(kX).square().mean() * pair.dp(other).square().mean()).backward();
  (pair.plain(kX).square().mean() * pair.plain(other).square().mean()).backward();
  pair.expect_equal_gradients();
}

TEST(DataParallelGraph, joins_a_graph_that_uses_the_parameters_elsewhere_too) {
  Pair pair(2);
  (pair.dp(kX).sum() + pair.net->body->weight.square().sum()).backward();
  (pair.plain(kX).sum() + pair.plain->body->weight.square().sum()).backward();
  pair.expect_equal_gradients();
}

TEST(DataParallelGraph, passes_gradients_on_to_inputs_that_need_them) {
  Pair pair(4);
  const Tensor a = kX.clone().requires_grad_(), b = kX.clone().requires_grad_();
  pair.dp(a * 2).square().sum().backward();
  pair.plain(b * 2).square().sum().backward();
  EXPECT_TRUE(tests::close(a.grad(), b.grad()));
  pair.expect_equal_gradients();
  const auto of_input = ::torch::autograd::grad({pair.dp(a).sum()}, {a});
  EXPECT_TRUE(tests::close(of_input[0], ::torch::autograd::grad({pair.plain(b).sum()}, {b})[0]));
  pair.expect_equal_gradients();  // autograd::grad adds to no `.grad`
}

TEST(DataParallelGraph, works_with_autograd_grad_for_parameters) {
  Pair pair(2);
  const auto actual = ::torch::autograd::grad({pair.dp(kX).sum()}, pair.net->parameters());
  const auto expected = ::torch::autograd::grad({pair.plain(kX).sum()}, pair.plain->parameters());
  EXPECT_TRUE(tests::close(flat(actual), flat(expected)));
  EXPECT_FALSE(pair.net->body->weight.grad().defined());
}

TEST(DataParallelGraph, can_be_gone_through_twice_if_it_is_retained) {
  Pair pair(2);
  const Tensor loss = pair.dp(kX).square().mean(), plain = pair.plain(kX).square().mean();
  loss.backward({}, /*retain_graph=*/true);
  pair.net->zero_grad();
  loss.backward();
  plain.backward();
  pair.expect_equal_gradients();
  const Tensor once = pair.dp(kX);
  once.sum().backward();
  const std::string text = error_of<UsageError>([&] { once.sum().backward(); });
  expect_contains(text, "a second time through a graph that was freed");
}

TEST(DataParallelGraph, refuses_gradients_of_gradients_and_goes_on) {
  Pair pair(2);
  const Tensor x = kX.clone().requires_grad_();
  const std::string text = error_of<UsageError>([&] {
    (void)::torch::autograd::grad({pair.dp(x).sum()}, {x}, {}, true, /*create_graph=*/true);
  });
  expect_contains(text, "create_graph: gradients of gradients");
  pair.dp(kX).sum().backward();
  pair.plain(kX).sum().backward();
  pair.expect_equal_gradients();
}

// Its output is the size of the gradient of its input.
struct PenaltyImpl : ::torch::nn::Module {
  Tensor forward(Tensor x) {
    const Tensor y = ::torch::tanh(fc(x));
    return ::torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0].square();
  }
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(4, 3));
};

TEST(DataParallelGraph, leaves_gradients_of_gradients_inside_a_replica_alone) {
  auto make_one = [] { return std::make_shared<PenaltyImpl>(); };
  auto net = make_one(), plain = make_one();
  fill(*net);
  fill(*plain);
  DataParallel dp(net, cpu_devices(2), make_one);
  const Tensor x = kX.clone().requires_grad_();
  dp(x).sum().backward();
  plain->forward(x).sum().backward();
  EXPECT_TRUE(tests::close(net->fc->weight.grad(), plain->fc->weight.grad()));
}

TEST(DataParallelGraph, runs_a_hook_of_a_parameter_once_on_the_sum) {
  Pair pair(3);
  int calls = 0;
  pair.net->head->weight.register_hook([&](const Tensor& gradient) {
    ++calls;
    return gradient * 0.5;
  });
  pair.plain->head->weight.register_hook([](const Tensor& gradient) { return gradient * 0.5; });
  pair.dp(kX).sum().backward();
  pair.plain(kX).sum().backward();
  EXPECT_EQ(calls, 1);
  pair.expect_equal_gradients();
}

TEST(DataParallelGraph, leaves_an_unused_parameter_without_gradient) {
  auto make_one = [] { return std::make_shared<tests::TwoHeadsImpl>(); };
  auto net = make_one();
  DataParallel dp(net, cpu_devices(2), make_one);
  dp(kX, true).sum().backward();
  EXPECT_TRUE(net->left->weight.grad().defined());
  EXPECT_FALSE(net->right->weight.grad().defined());
}

// Uses its second layer only for samples that are positive.
struct BranchingImpl : ::torch::nn::Module {
  Tensor forward(Tensor x) {
    const Tensor y = first(x);
    return x[0][0].item<float>() > 0 ? second(y) : y;
  }
  ::torch::nn::Linear first = register_module("first", ::torch::nn::Linear(4, 4));
  ::torch::nn::Linear second = register_module("second", ::torch::nn::Linear(4, 4));
};

TEST(DataParallelGraph, takes_the_gradient_of_a_parameter_that_only_one_replica_uses) {
  for (const int positive : {0, 1}) {
    auto make_one = [] { return std::make_shared<BranchingImpl>(); };
    auto net = make_one(), plain = make_one();
    fill(*net);
    fill(*plain);
    DataParallel dp(net, cpu_devices(2), make_one);
    const Tensor x = batch({4, 4}, 0).abs().add(0.1).neg();
    x.narrow(0, 2 * positive, 2).abs_();
    dp(x).sum().backward();
    for (const auto& part : x.chunk(2)) plain->forward(part).sum().backward();
    EXPECT_TRUE(
        tests::close(flat_gradients(net->parameters()), flat_gradients(plain->parameters())));
  }
}

TEST(DataParallelGraph, follows_requires_grad_as_it_changes) {
  Pair pair(2);
  for (const bool trainable : {false, true}) {
    for (Small net : {pair.net, pair.plain}) {
      net->zero_grad();
      net->body->weight.set_requires_grad(trainable);
    }
    pair.dp(kX).sum().backward();
    pair.plain(kX).sum().backward();
    EXPECT_EQ(pair.net->body->weight.grad().defined(), trainable);
    pair.expect_equal_gradients();
  }
  for (auto& parameter : pair.net->parameters()) parameter.set_requires_grad(false);
  EXPECT_FALSE(pair.dp(kX).requires_grad());
}

TEST(DataParallelGraph, fails_as_a_plain_module_does_if_parameters_change_before_its_backward) {
  Pair pair(2);
  const Tensor loss = pair.dp(kX).sum();
  {
    const ::torch::NoGradGuard no_grad;
    pair.net->head->weight.mul_(2);
  }
  pair.dp(kX);  // refreshes the other replica's parameters
  const std::string text = error_of<c10::Error>([&] { loss.backward(); });
  expect_contains(text, "modified by an inplace operation");
  expect_contains(text, "devices[0]");
  expect_contains(text, "devices[1]");
}

TEST(DataParallelGraph, sums_gradients_that_share_memory_with_others) {
  // The gradients of a and b are one tensor, and that of the output.
  struct SumImpl : ::torch::nn::Module {
    Tensor forward(Tensor x) { return x + a + b; }
    Tensor a = register_parameter("a", ::torch::zeros({2, 4}));
    Tensor b = register_parameter("b", ::torch::zeros({2, 4}));
  };
  auto make_one = [] { return std::make_shared<SumImpl>(); };
  auto net = make_one();
  DataParallel dp(net, cpu_devices(3), make_one);
  const Tensor y = dp(batch({6, 4}, 0));
  const Tensor upstream = batch({6, 4}, 1), before = upstream.clone();
  y.backward(upstream);
  const Tensor expected = upstream[0] + upstream[2] + upstream[4];
  EXPECT_TRUE(::torch::equal(upstream, before));
  EXPECT_TRUE(tests::close(net->a.grad()[0], expected));
  EXPECT_TRUE(tests::close(net->b.grad()[0], expected));
}

TEST(DataParallelGraph, sums_sparse_gradients) {
  auto make_one = [] {
    return ::torch::nn::Embedding(::torch::nn::EmbeddingOptions(10, 3).sparse(true));
  };
  auto net = make_one(), plain = make_one();
  fill(*net);
  fill(*plain);
  DataParallel dp(net, cpu_devices(3), make_one);
  const Tensor x = ::torch::arange(7).remainder(4);
  dp(x).square().sum().backward();
  plain(x).square().sum().backward();
  EXPECT_TRUE(net->weight.grad().is_sparse());
  EXPECT_TRUE(tests::close(net->weight.grad().to_dense(), plain->weight.grad().to_dense()));
}

TEST(DataParallelGraph, lets_outputs_be_changed_in_place) {
  for (const int devices : {1, 2}) {
    Pair pair(devices);
    pair.dp(kX).mul_(3).sum().backward();
    pair.plain(kX).mul_(3).sum().backward();
    pair.expect_equal_gradients();
  }
}

TEST(DataParallelGraph, outlives_the_wrapper) {
  Small net, plain;
  fill(*net);
  fill(*plain);
  Tensor loss;
  {
    DataParallel dp(net, cpu_devices(2));
    loss = dp(kX).sum();
  }
  loss.backward();
  plain(kX).sum().backward();
  EXPECT_TRUE(tests::close(flat_gradients(net->parameters()), flat_gradients(plain->parameters())));
}

struct WithConstantsImpl : ::torch::nn::Module {
  std::pair<Tensor, Tensor> forward(Tensor x) {
    const Tensor y = fc(x);
    return {y, y.detach()};
  }
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(4, 3));
};

TEST(DataParallelGraph, keeps_outputs_without_gradient_apart) {
  auto make_one = [] { return std::make_shared<WithConstantsImpl>(); };
  DataParallel dp(make_one(), cpu_devices(2), make_one);
  const auto [y, constant] = dp(kX);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(constant.requires_grad());
  y.sum().backward();
  EXPECT_TRUE(dp->fc->weight.grad().defined());
}

// Multiplies by a tensor that is no parameter.
struct HoldsImpl : ::torch::nn::Module {
  explicit HoldsImpl(Tensor other) : held(std::move(other)) {}
  Tensor forward(Tensor x) { return fc(x) * held; }
  Tensor held;
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(4, 3));
};

TEST(DataParallelGraph, refuses_a_tensor_from_outside_that_needs_a_gradient) {
  const Tensor leaf = ::torch::ones({1, 3}).requires_grad_();
  for (const Tensor& outside : {leaf, leaf * 2}) {
    const auto make_one = [&] { return std::make_shared<HoldsImpl>(outside); };
    DataParallel dp(make_one(), cpu_devices(2), make_one);
    const std::string text = error_of<UsageError>([&] { dp(kX); });
    expect_contains(text, "devices[0]");
    expect_contains(text, "devices[1]");
    expect_contains(text, "a tensor [1, 3] that needs a gradient, but is neither a parameter");
    const ::torch::NoGradGuard no_grad;  // where nothing would be lost
    EXPECT_EQ(dp(kX).size(0), 6);
  }
  Pair pair(2);
  const Tensor weights = ::torch::ones({1, 3}).requires_grad_();
  const std::string text = error_of<UsageError>([&] {
    pair.dp.forward_loss(kX, kX, [&](Tensor y, Tensor) { return (y * weights).mean(); });
  });
  expect_contains(text, "a tensor [1, 3] that needs a gradient");
  // The module's own parameter is a stranger to the other replica.
  const std::string of_module = error_of<UsageError>([&] {
    pair.dp.forward_loss(
        kX, kX, [&](Tensor y, Tensor) { return y.mean() + pair.net->head->weight.square().sum(); });
  });
  expect_contains(of_module, "devices[1]");
  EXPECT_EQ(of_module.find("devices[0]"), std::string::npos);
  pair.dp(kX).sum().backward();
  pair.plain(kX).sum().backward();
  pair.expect_equal_gradients();
}

TEST(DataParallelLoss, is_that_of_the_whole_batch) {
  const auto loss_of = [](const Tensor& y, const Tensor& target) {
    return functional::cross_entropy(y, target);
  };
  for (const int devices : {1, 2, 3, 4}) {
    Pair pair(devices);
    const Tensor x = batch({7, 4}, 0), y = classes(7, 0, 3);
    const Tensor loss = pair.dp.forward_loss(x, y, loss_of), plain = loss_of(pair.plain(x), y);
    EXPECT_EQ(loss.dim(), 0);
    EXPECT_TRUE(tests::close(loss, plain)) << devices;
    loss.backward();
    plain.backward();
    pair.expect_equal_gradients();
  }
}

TEST(DataParallelLoss, must_be_one_number) {
  Pair pair(2);
  const std::string text = error_of<UsageError>(
      [&] { pair.dp.forward_loss(kX, kX, [](Tensor y, Tensor) { return y; }); });
  expect_contains(text, "loss_fn returned a tensor [3, 3], not one number");
  const Tensor one =
      pair.dp.forward_loss(kX, kX, [](Tensor y, Tensor) { return y.mean().reshape({1}); });
  EXPECT_TRUE(tests::close(one, pair.plain(kX).mean()));
}

TEST(DataParallelLoss, takes_a_tuple_as_the_arguments_of_the_module) {
  auto make_one = [] { return std::make_shared<tests::TwoHeadsImpl>(); };
  auto net = make_one();
  DataParallel dp(net, cpu_devices(2), make_one);
  const Tensor loss =
      dp.forward_loss(std::tuple(kX, false), batch({6, 1}, 1),
                      [](Tensor y, Tensor target) { return functional::mse_loss(y, target); });
  EXPECT_TRUE(tests::close(loss, functional::mse_loss(net->forward(kX, false), batch({6, 1}, 1))));
}

// Two memories are simulated by carrying tensors to the device where they lie.
TEST(Carry, brings_tensors_of_several_types_and_shapes_and_leaves_out_undefined_ones) {
  const std::vector<Tensor> tensors{batch({2, 3}, 0),     Tensor(),
                                    ::torch::arange(4),   batch({3, 2}, 1).t(),
                                    ::torch::tensor(2.5), ::torch::eye(2).to_sparse()};
  const auto arrived = carry(tensors, ::torch::kCPU);
  ASSERT_EQ(arrived.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ASSERT_EQ(arrived[i].defined(), tensors[i].defined());
    if (!tensors[i].defined()) continue;
    EXPECT_EQ(arrived[i].scalar_type(), tensors[i].scalar_type());
    EXPECT_TRUE(::torch::equal(arrived[i].to_dense(), tensors[i].to_dense())) << i;
  }
}

// Runs only where a GPU and LibTorch's CUDA library with all that it needs are present.
class DataParallelOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      GTEST_SKIP() << "no CUDA here: " << dlerror();
    }
    if (!::torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device here";
  }
};

TEST_F(DataParallelOnCuda, equals_the_plain_module) {
  std::vector<c10::Device> devices;
  for (c10::DeviceIndex i = 0; i < ::torch::cuda::device_count(); ++i) {
    devices.emplace_back(c10::kCUDA, i);
  }
  Small net, plain;
  for (Small module : {net, plain}) {
    fill(*module);
    module->to(devices.front());
  }
  DataParallel dp(net, devices);
  const Tensor x = batch({13, 4}, 0).to(devices.front());
  for (int step = 0; step < 3; ++step) {
    dp(x).square().mean().backward();
    plain(x).square().mean().backward();
  }
  EXPECT_TRUE(tests::close(flat_gradients(net->parameters()).cpu(),
                           flat_gradients(plain->parameters()).cpu()));
}

}  // namespace
}  // namespace paceline
