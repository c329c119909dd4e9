// SPDX-License-Identifier: Apache-2.0
// What goes into DataParallel and comes out of it: trees of tensors, batches of all sizes, bad
// input, and what replicas throw.
#include <array>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
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
using tests::SmallImpl;
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

struct TwiceImpl : ::torch::nn::Module {
  std::pair<::torch::Tensor, ::torch::Tensor> forward(const ::torch::Tensor& x) { return {x, x}; }
  ::torch::Tensor unused = register_parameter("unused", ::torch::zeros({1}));
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

TEST(DataParallelErrors, name_a_wrapper_that_was_moved_from) {
  const auto make = [] { return std::make_shared<TwiceImpl>(); };
  DataParallel dp(make(), cpu_devices(2), make);
  DataParallel other(std::move(dp));
  EXPECT_THROW((void)dp(::torch::ones({2, 1})), UsageError);  // NOLINT: on purpose
  EXPECT_THROW((void)dp.parameters(), UsageError);
  EXPECT_EQ(other(::torch::ones({2, 1})).first.size(0), 2);
}

TEST(DataParallelErrors, name_a_loss_that_is_no_floating_number) {
  const auto make = [] { return std::make_shared<TwiceImpl>(); };
  DataParallel dp(make(), cpu_devices(2), make);
  const std::string text = error_of<UsageError>([&] {
    (void)dp.forward_loss(::torch::ones({2, 1}), ::torch::ones({2}),
                          [](const auto&, const auto&) { return ::torch::tensor(3); });
  });
  expect_contains(text, "a loss must be floating");
}

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

template <typename... Args>
std::string refusal(Args&&... args) {
  return error_of<UsageError>([&] { DataParallel dp(std::forward<Args>(args)...); });
}

TEST(DataParallelErrors, name_what_is_wrong_with_the_devices) {
  const Small net;
  using Devices = std::vector<c10::Device>;
  expect_contains(refusal(net, Devices{}), "there is no device");
  expect_contains(error_of<UsageError>([] { (void)cpu_devices(0); }), "0 devices");
  const c10::Device gpu(c10::kCUDA, 0), far(c10::kCUDA, 100);
  expect_contains(refusal(net, Devices{gpu, far, gpu}), "devices[2] (cuda:0) is devices[0] again");
  expect_contains(refusal(net, Devices{far}),
                  "devices[0] (cuda:100) does not exist: LibTorch sees");
  expect_contains(refusal(net, Devices{c10::kCPU, gpu}), "devices[1] (cuda:0) is of another kind");
  expect_contains(refusal(net, Devices{c10::kCUDA}), "devices[0] (cuda) lacks an index");
  EXPECT_EQ(DataParallel(net, {c10::Device(c10::kCPU, 0), c10::kCPU}).devices(), cpu_devices(2));
}

TEST(DataParallelErrors, name_what_is_wrong_with_the_module) {
  expect_contains(refusal(Small(nullptr), cpu_devices(2)), "the module is empty");
  expect_contains(refusal(std::shared_ptr<SmallImpl>(), cpu_devices(2)), "the module is empty");
  struct ElsewhereImpl : ::torch::nn::Module {
    Tensor forward(Tensor x) { return x; }
    Tensor p = register_parameter("p", ::torch::ones(3, at::kMeta));
  };
  expect_contains(refusal(std::make_shared<ElsewhereImpl>(), cpu_devices(2)),
                  "p of the module is on meta, but devices[0] is cpu; move the module there first");
  expect_contains(refusal(Small(), cpu_devices(2), DataParallelOptions{.batch_dim = -1}),
                  "batch_dim is -1");
  struct SparseImpl : ::torch::nn::Module {
    Tensor forward(Tensor x) { return x; }
    Tensor p = register_parameter("p", ::torch::eye(3).to_sparse());
  };
  expect_contains(refusal(std::make_shared<SparseImpl>(), cpu_devices(1)),
                  "p of the module is not dense");
}

// Can neither be cloned nor, without a factory, be replicated.
struct PlainImpl : ::torch::nn::Module {
  explicit PlainImpl(int outputs = 3, const std::string& name = "fc") : fc(4, outputs) {
    register_module(name, fc);
  }
  Tensor forward(Tensor x) { return fc(x); }
  ::torch::nn::Linear fc;
};

// Its copy registers the very same submodule again.
struct SharingImpl : ::torch::nn::Cloneable<SharingImpl> {
  SharingImpl() { SharingImpl::reset(); }
  void reset() override {
    if (!fc) fc = ::torch::nn::Linear(4, 3);
    register_module("fc", fc);
  }
  Tensor forward(Tensor x) { return fc(x); }
  ::torch::nn::Linear fc = nullptr;
};

TEST(DataParallelErrors, name_what_is_wrong_with_a_replica) {
  const auto net = std::make_shared<PlainImpl>();
  const std::string text = refusal(net, cpu_devices(2));
  expect_contains(text, "no replica of");
  expect_contains(text, "PlainImpl for devices[1]: clone() failed");
  expect_contains(text, "derive the module from torch::nn::Cloneable, or pass a factory");
  EXPECT_EQ(DataParallel(net, cpu_devices(1))(batch({2, 4}, 0)).size(1), 3);  // needs no replica
  const auto with = [&](const std::function<std::shared_ptr<PlainImpl>()>& factory) {
    return refusal(net, cpu_devices(2), factory);
  };
  expect_contains(with(nullptr), "the factory failed: bad_function_call");
  expect_contains(with([] { return nullptr; }), "the factory returned nothing");
  expect_contains(with([]() -> std::shared_ptr<PlainImpl> { throw std::runtime_error("no disk"); }),
                  "the factory failed: no disk");
  expect_contains(with([] { return std::make_shared<PlainImpl>(5); }),
                  "parameter fc.weight is [3, 4] on the module, but [5, 4] on the replica for "
                  "devices[1]");
  expect_contains(with([] { return std::make_shared<PlainImpl>(3, "other"); }),
                  "parameter fc.weight ([3, 4]) is there on the module, but not on the replica");
  expect_contains(with([&] { return net; }), "shares fc.weight with that for devices[0]");
  const auto one = std::make_shared<PlainImpl>();
  expect_contains(refusal(net, cpu_devices(3), [&] { return one; }),
                  "the replica for devices[2] shares fc.weight with that for devices[1]");
  expect_contains(refusal(std::make_shared<SharingImpl>(), cpu_devices(2)),
                  "shares fc.weight with that for devices[0]");
  struct OtherImpl : ::torch::nn::Cloneable<OtherImpl> {
    void reset() override {}
    Tensor forward(Tensor x) { return x; }
  };
  struct DerivedImpl : OtherImpl {};  // its clone() makes an OtherImpl
  expect_contains(refusal(std::make_shared<DerivedImpl>(), cpu_devices(2)), "not a");
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

// Returns what `output` makes of its part of the batch.
struct FreeImpl : ::torch::nn::Module {
  using Make = std::function<std::vector<Tensor>(Tensor)>;
  explicit FreeImpl(Make make_output) : output(std::move(make_output)) {}
  std::vector<Tensor> forward(Tensor x) { return output(fc(x)); }
  Make output;
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(4, 3));
};

TEST(DataParallelErrors, name_outputs_that_cannot_be_joined) {
  const auto text_of = [](const FreeImpl::Make& output, DataParallelOptions options = {}) {
    const auto make_one = [&] { return std::make_shared<FreeImpl>(output); };
    DataParallel dp(make_one(), cpu_devices(2), make_one, options);
    return error_of<UsageError>([&] { dp(batch({3, 4, 4}, 0)); });  // parts of 2 and 1
  };
  using List = std::vector<Tensor>;
  const auto is_first = [](const Tensor& y) { return y.size(0) == 2; };
  expect_contains(text_of([&](Tensor y) {
                    return is_first(y) ? List{y} : List{y, y};
                  }),
                  "devices[1] returned 2 tensors, devices[0] 1");
  expect_contains(
      text_of([&](Tensor y) { return List{is_first(y) ? y : y.narrow(2, 0, 1)}; }),
      "output 0 of devices[1] is f32 [1, 4, 1], which does not fit to the f32 [2, 4, 3]");
  expect_contains(text_of([&](Tensor y) {
                    return List{y, is_first(y) ? y : y.to(at::kDouble)};
                  }),
                  "output 1 of devices[1] is f64");
  expect_contains(text_of([](Tensor y) { return List{y.to_sparse()}; }), "is not dense");
  expect_contains(text_of(
                      [](Tensor y) {
                        return List{y.sum({1, 2})};
                      },
                      {.batch_dim = 1}),
                  "output 0 of devices[0] is f32 [3]: it has no dimension 1 along which to join");
}

TEST(DataParallelErrors, name_what_has_changed_about_the_module) {
  const Tensor x = batch({4, 4}, 0);
  const auto text_after = [&](const std::function<void(SmallImpl&)>& change) {
    Small net;
    DataParallel dp(net, cpu_devices(2));
    dp(x);
    change(*net);
    return error_of<UsageError>([&] { dp(x); });
  };
  expect_contains(text_after([](auto& net) { net.register_parameter("more", ::torch::ones(1)); }),
                  "the module changed after it was wrapped: more was added");
  expect_contains(text_after([](auto& net) { net.register_buffer("more", ::torch::ones(1)); }),
                  "more was added");
  expect_contains(text_after([](auto& net) {
                    net.head = net.replace_module("head", ::torch::nn::Linear(8, 3));
                  }),
                  "head.weight was replaced");
  expect_contains(text_after([](auto& net) { net.to(::torch::kDouble); }),
                  "body.weight has another type or shape; wrap it again");
}

struct UsersError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws on the parts whose first number is in `bad`.
struct ThrowingImpl : ::torch::nn::Module {
  explicit ThrowingImpl(std::function<void(int)> then) : act(std::move(then)) {}
  Tensor forward(Tensor x) {
    act(x[0][0].item<int>());
    return fc(x);
  }
  std::function<void(int)> act;
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(1, 1));
};

// Three parts, which begin with 0, 1 and 2.
const Tensor kParts = ::torch::arange(3, ::torch::kFloat).reshape({3, 1});

template <typename Error>
std::string thrown_by(const std::function<void(int)>& act) {
  bool fail = true;
  const auto make_one = [&] {
    return std::make_shared<ThrowingImpl>([&](int part) {
      if (fail) act(part);
    });
  };
  DataParallel dp(make_one(), cpu_devices(3), make_one);
  const std::string text = error_of<Error>([&] { dp(kParts); });
  fail = false;
  dp(kParts).sum().backward();  // it can be used again
  const Tensor gradient = dp->fc->weight.grad();
  EXPECT_EQ(gradient.item<float>(), 3.F);
  return text;
}

TEST(DataParallelErrors, of_replicas_are_thrown_with_their_device_and_all_texts) {
  const std::string text = thrown_by<std::out_of_range>([](int part) {
    if (part == 1) throw std::out_of_range("too far");
    if (part == 2) throw std::logic_error("a bug");
  });
  EXPECT_EQ(text,
            "DataParallel: forward on devices[1] (cpu): too far; also devices[2] (cpu): a bug");
}

TEST(DataParallelErrors, of_replicas_keep_their_type) {
  const auto on_last = [](const auto& error) {
    return [=](int part) {
      if (part == 2) throw error;
    };
  };
  using Place = c10::SourceLocation;
  for (const std::string& text : {
           thrown_by<c10::IndexError>(on_last(c10::IndexError(Place{"f", "file", 1}, "why"))),
           thrown_by<c10::Error>([](int part) { TORCH_CHECK(part < 2, "why"); }),
           thrown_by<UsageError>(on_last(UsageError("why"))),
           thrown_by<CommError>(on_last(CommError(CommErrc::kTimeout, 3, 1, "why"))),
           thrown_by<std::invalid_argument>(on_last(std::invalid_argument("why"))),
           thrown_by<std::domain_error>(on_last(std::domain_error("why"))),
           thrown_by<std::length_error>(on_last(std::length_error("why"))),
           thrown_by<std::logic_error>(on_last(std::logic_error("why"))),
           thrown_by<std::range_error>(on_last(std::range_error("why"))),
           thrown_by<std::overflow_error>(on_last(std::overflow_error("why"))),
           thrown_by<std::underflow_error>(on_last(std::underflow_error("why"))),
           thrown_by<std::runtime_error>(on_last(UsersError("why"))),
       }) {
    expect_contains(text, "why");
    expect_contains(text, "forward on devices[2] (cpu)");
  }
  expect_contains(thrown_by<std::runtime_error>(on_last(42)), "no std::exception");
  expect_contains(thrown_by<std::runtime_error>(on_last(std::bad_alloc())), "bad_alloc");
}

TEST(DataParallelErrors, of_replicas_have_the_original_inside) {
  const auto make_one = [] {
    return std::make_shared<ThrowingImpl>([](int) { throw UsersError("mine"); });
  };
  DataParallel dp(make_one(), cpu_devices(2), make_one);
  try {
    dp(kParts);
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_THROW(std::rethrow_if_nested(error), UsersError);
  }
}

TEST(DataParallelErrors, of_a_backward_leave_the_wrapper_usable) {
  bool fail = true;
  const auto make_one = [&] {
    return std::make_shared<FreeImpl>([&](Tensor y) {
      if (fail && y.size(0) == 1) {
        y.register_hook([](const Tensor&) { throw UsersError("in backward"); });
      }
      return std::vector<Tensor>{y * 1};
    });
  };
  DataParallel dp(make_one(), cpu_devices(2), make_one);
  const Tensor x = batch({3, 4}, 0), loss = dp(x)[0].sum();
  EXPECT_EQ(error_of<std::runtime_error>([&] { loss.backward(); }),
            "DataParallel: backward on devices[1] (cpu): in backward");
  EXPECT_FALSE(dp->fc->weight.grad().defined());
  fail = false;
  dp(x)[0].sum().backward();
  EXPECT_TRUE(tests::close(dp->fc->weight.grad()[0], x.sum(0)));
}

TEST(DataParallelErrors, say_that_a_replica_calls_its_own_wrapper) {
  std::function<void()> again;
  const auto make_one = [&] { return std::make_shared<ThrowingImpl>([&](int) { again(); }); };
  DataParallel dp(make_one(), cpu_devices(2), make_one);
  again = [&] { dp(kParts); };
  expect_contains(error_of<UsageError>([&] { dp(kParts); }), "it is at work already");
  again = [] {};
  EXPECT_EQ(dp(kParts).size(0), 3);
}

}  // namespace
}  // namespace paceline
