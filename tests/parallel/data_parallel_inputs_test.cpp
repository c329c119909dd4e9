// SPDX-License-Identifier: Apache-2.0
// What goes into DataParallel and comes out: trees of tensors, batches of all sizes, bad input.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "data_parallel_support.h"
#include "paceline/parallel/batch_split.h"

// A user's types, in a user's namespace.
namespace shop {

struct Order {
  ::torch::Tensor items;
  std::map<std::string, std::vector<::torch::Tensor>> extras;
  std::optional<::torch::Tensor> note;
  int factor = 1;
};
auto tensor_fields(Order& order) { return std::tie(order.items, order.extras, order.note); }

struct Bill {
  std::pair<::torch::Tensor, std::array<::torch::Tensor, 2>> lines;
  std::string text;
};
auto tensor_fields(Bill& bill) { return std::tie(bill.lines); }

struct TillImpl : ::torch::nn::Module {
  Bill forward(Order order, const std::vector<::torch::Tensor>& more, bool negate) {
    ::torch::Tensor sum = fc(order.items) * order.factor + order.extras.at("tax")[0] + more[0];
    if (order.note) sum = sum + *order.note;
    return {{negate ? -sum : sum, {order.extras.at("tax")[1], sum.detach()}}, "total"};
  }
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(4, 4));
};
TORCH_MODULE(Till);

}  // namespace shop

namespace paceline {
namespace {

using tests::batch;
using tests::error_of;
using tests::expect_contains;
using tests::fill;
using tests::flat_gradients;
using tests::make;
using tests::Small;
using tests::TwiceImpl;
using ::torch::Tensor;

TEST(TensorTree, is_walked_in_the_order_of_its_fields) {
  shop::Order order{.items = ::torch::tensor(1), .extras = {}, .note = ::torch::tensor(4)};
  order.extras["a"] = {::torch::tensor(2), ::torch::tensor(3)};
  const std::tuple tree(order, 7, "text", std::vector<bool>{true}, std::filesystem::path("a/b"),
                        std::optional<Tensor>(), std::pair(::torch::tensor(5), std::string("x")));
  std::vector<int> seen;
  for_each_tensor(tree, [&](const Tensor& tensor) { seen.push_back(tensor.item<int>()); });
  EXPECT_EQ(seen, (std::vector{1, 2, 3, 4, 5}));
  EXPECT_EQ(tensors_of(tree).size(), 5U);
}

TEST(TensorTree, takes_other_tensors_in_the_same_order) {
  shop::Order order{.items = ::torch::tensor(1), .extras = {}, .note = {}, .factor = 3};
  order.extras["a"] = {::torch::tensor(2)};
  shop::Order copy = order;
  const std::vector<Tensor> others{::torch::tensor(10), ::torch::tensor(20)};
  replace_tensors(copy, others);
  EXPECT_TRUE(copy.items.is_same(others[0]));
  EXPECT_TRUE(copy.extras["a"][0].is_same(others[1]));
  EXPECT_EQ(copy.factor, 3);
  EXPECT_EQ(order.items.item<int>(), 1);
}

TEST(DataParallelInputs, are_trees_of_any_depth_and_so_are_outputs) {
  shop::Till net;
  DataParallel dp(net, cpu_devices(3), make<shop::Till>);
  shop::Order order{.items = batch({7, 4}, 0), .extras = {}, .note = batch({7, 1}, 3), .factor = 2};
  order.extras["tax"] = {batch({7, 4}, 1), batch({7, 2}, 2)};
  const std::vector<Tensor> more{batch({7, 4}, 4)};
  for (const bool with_note : {true, false}) {
    if (!with_note) order.note.reset();
    const shop::Bill actual = dp(order, more, true), expected = net(order, more, true);
    EXPECT_TRUE(tests::close(actual.lines.first, expected.lines.first));
    for (const std::size_t i : {0U, 1U}) {
      EXPECT_TRUE(tests::close(actual.lines.second[i], expected.lines.second[i]));
    }
    EXPECT_EQ(actual.text, "total");
  }
}

// One output for each kind of shape.
struct ShapesImpl : ::torch::nn::Module {
  std::tuple<Tensor, Tensor, Tensor> forward(Tensor x, Tensor nothing) {
    return {fc(x), fc(x).mean(), nothing};
  }
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(4, 3));
};
TORCH_MODULE(Shapes);

TEST(DataParallelInputs, of_any_batch_size_give_the_outputs_and_gradients_of_one_device) {
  for (const int devices : {1, 2, 4}) {
    for (const std::int64_t size : {0, 1, 3, 4, 5, 8, 13}) {
      Shapes net, plain;
      fill(*net);
      fill(*plain);
      DataParallel dp(net, cpu_devices(devices), make<Shapes>);
      const Tensor x = batch({size, 4}, 0);
      const auto [y, means, undefined] = dp(x, Tensor());
      EXPECT_FALSE(undefined.defined());
      const auto parts = x.chunk(devices);
      const std::size_t count = size == 0 ? 1 : parts.size();
      ASSERT_EQ(means.sizes(), std::vector{static_cast<std::int64_t>(count)});
      for (std::size_t i = 0; i < count && size > 0; ++i) {
        EXPECT_TRUE(tests::close(means[static_cast<std::int64_t>(i)], plain->fc(parts[i]).mean()));
      }
      const Tensor expected = plain->fc(x);
      ASSERT_TRUE(tests::close(y, expected)) << devices << " devices, " << size;
      y.sum().backward();
      expected.sum().backward();
      EXPECT_TRUE(
          tests::close(flat_gradients(net->parameters()), flat_gradients(plain->parameters())));
    }
  }
}

TEST(DataParallelInputs, have_a_scalar_of_each_part_in_a_vector_that_has_a_gradient) {
  Shapes net, plain;
  fill(*net);
  fill(*plain);
  DataParallel dp(net, cpu_devices(2), make<Shapes>);
  const Tensor x = batch({5, 4}, 0), weights = ::torch::tensor({3.F, 5.F});
  (std::get<1>(dp(x, Tensor())) * weights).sum().backward();
  (plain->fc(x.narrow(0, 0, 3)).mean() * 3 + plain->fc(x.narrow(0, 3, 2)).mean() * 5).backward();
  EXPECT_TRUE(tests::close(flat_gradients(net->parameters()), flat_gradients(plain->parameters())));
}

TEST(DataParallelInputs, can_have_the_batch_in_another_dimension) {
  Small net;
  DataParallel dp(net, cpu_devices(3), {.batch_dim = 1});
  const Tensor x = batch({2, 7, 4}, 0);
  EXPECT_TRUE(tests::close(dp(x), net(x)));
  const Tensor a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
  dp(a).square().sum().backward();
  net(b).square().sum().backward();
  EXPECT_TRUE(tests::close(a.grad(), b.grad()));
}

TEST(DataParallelInputs, are_split_as_torch_chunk_does) {
  for (std::int64_t size = 1; size < 40; ++size) {
    for (const std::size_t devices : {1U, 2U, 3U, 7U, 50U}) {
      const auto expected = ::torch::empty({size}).chunk(static_cast<std::int64_t>(devices));
      const auto parts = split_batch(size, devices);
      ASSERT_EQ(parts.size(), expected.size());
      std::int64_t begin = 0;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(parts[i].begin, begin);
        EXPECT_EQ(parts[i].size, expected[i].size(0));
        begin += parts[i].size;
      }
    }
  }
}

struct SilentImpl : ::torch::nn::Module {
  void forward(Tensor x, std::vector<std::int64_t>* seen) {
    (*seen)[static_cast<std::size_t>(x[0][0].item<std::int64_t>())] = x.size(0);
  }
};

// What would be joined in part only does not compile.
struct Unknown {
  ::torch::Tensor y;
};
static_assert(!is_tensor_tree<Unknown>());
static_assert(!is_tensor_tree<std::vector<std::pair<int, Unknown>>>());
static_assert(!is_tensor_tree<c10::IValue>());
static_assert(!is_tensor_tree<::torch::OrderedDict<std::string, ::torch::Tensor>>());
static_assert(is_tensor_tree<std::map<std::string, std::optional<::torch::Tensor>>>());
static_assert(is_tensor_tree<std::tuple<::torch::Tensor, int, std::string, shop::Bill>>());

TEST(DataParallelInputs, that_are_outputs_too_share_no_memory_with_them) {
  for (const int devices : {1, 2}) {
    const auto make = [] { return std::make_shared<TwiceImpl>(); };
    DataParallel dp(make(), cpu_devices(devices), make);
    const ::torch::Tensor x = ::torch::ones({2, 1});
    auto [first, second] = dp(x);
    first.mul_(3);
    EXPECT_EQ(x.sum().item<float>(), 2) << devices;
    EXPECT_EQ(second.sum().item<float>(), 2) << devices;
  }
}

TEST(DataParallelInputs, may_lead_to_no_output_at_all) {
  auto make_one = [] { return std::make_shared<SilentImpl>(); };
  DataParallel dp(make_one(), cpu_devices(2), make_one);
  std::vector<std::int64_t> seen(4);
  static_assert(std::is_void_v<decltype(dp(Tensor(), &seen))>);
  dp(::torch::arange(3).reshape({3, 1}), &seen);
  EXPECT_EQ(seen, (std::vector<std::int64_t>{2, 0, 1, 0}));
}

TEST(DataParallelErrors, name_what_is_wrong_with_the_inputs) {
  auto make_one = [] { return std::make_shared<tests::TwoHeadsImpl>(); };
  DataParallel dp(make_one(), cpu_devices(2), make_one);
  const auto with = [&](const Tensor& x) { return error_of<UsageError>([&] { dp(x, true); }); };
  expect_contains(with(Tensor()), "there is no tensor among the inputs");
  expect_contains(with(::torch::tensor(1.5F)), "input tensor 0 is f32 []: it has no dimension 0");
  auto two = [] { return std::make_shared<ShapesImpl>(); };
  DataParallel of_two(two(), cpu_devices(2), two);
  expect_contains(error_of<UsageError>([&] {
                    of_two(batch({4, 4}, 0), batch({5, 4}, 0));
                  }),
                  "input tensor 1 has a batch of 5, but input tensor 0 one of 4");
  DataParallel columns(Small(), cpu_devices(2), {.batch_dim = 2});
  expect_contains(error_of<UsageError>([&] {
                    columns(batch({4, 4}, 0));
                  }),
                  "it has no dimension 2 to split");
  EXPECT_EQ(dp(batch({4, 4}, 0), true).size(0), 4);
}

}  // namespace
}  // namespace paceline
