// SPDX-License-Identifier: Apache-2.0
// What DataParallel refuses, and what becomes of what its replicas throw.
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "data_parallel_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::error_of;
using tests::expect_contains;
using tests::Small;
using tests::SmallImpl;
using tests::TwiceImpl;
using ::torch::Tensor;

TEST(DataParallelErrors, name_a_wrapper_that_was_moved_from) {
  const auto make = [] { return std::make_shared<TwiceImpl>(); };
  DataParallel dp(make(), cpu_devices(2), make);
  DataParallel other(std::move(dp));
  EXPECT_THROW((void)dp(::torch::ones({2, 1})), UsageError);  // NOLINT: on purpose
  EXPECT_THROW((void)dp.parameters(), UsageError);
  EXPECT_THROW((void)dp.devices(), UsageError);
  EXPECT_THROW((void)dp.module(), UsageError);
  EXPECT_THROW((void)dp->children(), UsageError);
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
