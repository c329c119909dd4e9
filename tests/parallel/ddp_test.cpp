// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/distributed_data_parallel.h"

#include <algorithm>
#include <functional>
#include <latch>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models.h"
#include "paceline/base/error.h"
#include "paceline/comm/init.h"

namespace paceline {
namespace {

using tests::batch;
using tests::Cnn;
using tests::fill;
using tests::gradient_bound;
using tests::kUnit64;
using tests::Mlp;
using ::torch::Tensor;

std::size_t place_of(const Communicator& comm) { return static_cast<std::size_t>(comm.rank()); }

Tensor flat_gradients(const ::torch::nn::Module& net) {
  std::vector<Tensor> parts;
  for (const auto& parameter : net.parameters()) {
    parts.push_back(parameter.grad().to(::torch::kDouble).reshape(-1));
  }
  return ::torch::cat(parts);
}

Tensor flat_parameters(const ::torch::nn::Module& net) {
  std::vector<Tensor> parts;
  for (const auto& parameter : net.parameters()) parts.push_back(parameter.detach().reshape(-1));
  return ::torch::cat(parts).clone();
}

// What each rank throws; "" where nothing was thrown.
template <typename Error>
std::vector<std::string> errors_of(int world, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  spawn_ranks(world, [&](Communicator& comm) {
    try {
      body(comm);
    } catch (const Error& error) {
      texts[place_of(comm)] = error.what();
    }
    // No rank leaves before all have their error: a closed link is not what is tested here.
    try {
      comm.barrier();
    } catch (const CommError&) {  // poisoned
    }
  });
  return texts;
}

void expect_all_contain(const std::vector<std::string>& texts, const std::string& part) {
  for (const auto& text : texts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
  }
}

// ---- numbers ---------------------------------------------------------------------------------

TEST(Ddp, on_one_rank_gives_the_bits_of_plain_training_and_sends_nothing) {
  spawn_ranks(1, [](Communicator& comm) {
    Cnn plain;
    Cnn net;
    fill(*plain);
    fill(*net);
    DistributedDataParallel ddp(net, comm, {.bucket_cap_bytes = 512, .first_bucket_cap_bytes = 64});
    const auto options = ::torch::optim::SGDOptions(0.05).momentum(0.9);
    ::torch::optim::SGD of_plain(plain->parameters(), options);
    ::torch::optim::SGD of_ddp(ddp.parameters(), options);
    for (int step = 0; step < 5; ++step) {
      const auto x = batch({4, 1, 8, 8}, 0, step);
      of_plain.zero_grad();
      plain(x).square().mean().backward();
      of_plain.step();
      of_ddp.zero_grad();
      ddp(x).square().mean().backward();
      of_ddp.step();
      ASSERT_TRUE(::torch::equal(flat_parameters(*net), flat_parameters(*plain))) << step;
      for (const auto& item : plain->named_buffers()) {
        ASSERT_TRUE(::torch::equal(item.value(), net->named_buffers()[item.key()]));
      }
    }
    EXPECT_EQ(ddp.statistics().steps, 5U);
    EXPECT_EQ(ddp.statistics().formula_bytes_sent, 0U);
    for (const auto& [label, traffic] : comm.traffic())
      EXPECT_EQ(traffic.messages_sent, 0U) << label;
  });
}

TEST(Ddp, equals_one_process_on_the_joined_batch) {
  constexpr int kWorld = 3;
  Mlp joined;
  joined->to(::torch::kDouble);
  fill(*joined);
  std::vector<Tensor> inputs;
  Tensor mean_abs = ::torch::zeros({});
  for (int rank = 0; rank < kWorld; ++rank) {
    inputs.push_back(batch({4, 12}, rank).to(::torch::kDouble));
    joined->zero_grad();
    joined(inputs.back()).square().mean().backward();
    mean_abs = mean_abs + flat_gradients(*joined).abs() / kWorld;
  }
  joined->zero_grad();
  joined(::torch::cat(inputs)).square().mean().backward();
  const Tensor expected = flat_gradients(*joined);
  const Tensor bound = gradient_bound(kWorld, mean_abs, kWorld * tests::MlpImpl::kChain, kUnit64);
  spawn_ranks(kWorld, [&](Communicator& comm) {
    Mlp net;
    net->to(::torch::kDouble);
    fill(*net, comm.rank());  // rank 0's values must win
    DistributedDataParallel ddp(net, comm);
    ddp(inputs[place_of(comm)]).square().mean().backward();
    EXPECT_TRUE(((flat_gradients(*net) - expected).abs() <= bound).all().item<bool>());
  });
}

TEST(Ddp, leaves_the_same_bits_on_every_rank) {
  for (const int world : {2, 3, 5}) {
    std::vector<Tensor> results(static_cast<std::size_t>(world));
    spawn_ranks(world, [&](Communicator& comm) {
      Cnn net;  // random, different on each rank
      DistributedDataParallel ddp(net, comm,
                                  {.bucket_cap_bytes = 600, .first_bucket_cap_bytes = 100});
      ::torch::optim::SGD optimizer(ddp.parameters(), 0.1);
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        ddp(batch({4, 1, 8, 8}, comm.rank(), step)).square().mean().backward();
        optimizer.step();
      }
      results[place_of(comm)] = flat_parameters(*net);
    });
    for (const auto& result : results) EXPECT_TRUE(::torch::equal(result, results.front()));
  }
}

struct MixedImpl : ::torch::nn::Module {
  Tensor single = register_parameter("single", ::torch::ones({3}));
  Tensor half = register_parameter("half", ::torch::ones({5}, ::torch::kBFloat16));
  Tensor twice = register_parameter("twice", ::torch::ones({2}, ::torch::kDouble));
  Tensor frozen = register_parameter("frozen", ::torch::ones({2}, ::torch::kInt), false);
  Tensor forward(double factor) {
    return (single.sum() + half.sum().to(::torch::kFloat) + twice.sum().to(::torch::kFloat)) *
           factor;
  }
};
TORCH_MODULE(Mixed);

TEST(Ddp, keeps_types_in_buckets_of_their_own_and_averages_each) {
  spawn_ranks(4, [](Communicator& comm) {
    Mixed net;
    DistributedDataParallel ddp(net, comm);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      ddp(1.0 + comm.rank()).backward();  // mean of 1, 2, 3, 4
      for (const auto& parameter : {net->single, net->half, net->twice}) {
        EXPECT_TRUE((parameter.grad() == 2.5).all().item<bool>());
        EXPECT_EQ(parameter.grad().scalar_type(), parameter.scalar_type());
      }
    }
    const auto buckets = ddp.buckets();
    ASSERT_EQ(buckets.size(), 3U);
    std::vector<std::string> names;
    for (const auto& bucket : buckets) {
      ASSERT_EQ(bucket.parameters.size(), 1U);
      names.push_back(std::string(name_of(bucket.dtype)) + " " + bucket.parameters.front());
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (std::vector<std::string>{"bf16 half", "f32 single", "f64 twice"}));
  });
}

TEST(Ddp, trains_500_small_parameters) {
  struct ManyImpl : ::torch::nn::Module {
    ManyImpl() {
      for (int i = 0; i < 500; ++i) {
        all.push_back(register_parameter("p" + std::to_string(i), ::torch::full({1 + i % 3}, 1.0)));
      }
    }
    Tensor forward(double factor) {
      Tensor sum = ::torch::zeros({});
      for (std::size_t i = 0; i < all.size(); ++i)
        sum = sum + all[i].sum() * (factor * static_cast<double>(i));
      return sum;
    }
    std::vector<Tensor> all;
  };
  spawn_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<ManyImpl>();
    DistributedDataParallel ddp(net, comm,
                                {.bucket_cap_bytes = 1000, .first_bucket_cap_bytes = 100});
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      ddp(comm.rank() == 0 ? 1.0 : 3.0).backward();
      for (std::size_t i = 0; i < net->all.size(); ++i) {
        ASSERT_TRUE((net->all[i].grad() == 2.0 * static_cast<double>(i)).all().item<bool>()) << i;
      }
    }
    EXPECT_GE(ddp.buckets().size(), 4U);
  });
}

// ---- gradients as views ----------------------------------------------------------------------

TEST(Ddp, keeps_gradients_in_bucket_memory_with_zero_grad_to_none_and_to_zero) {
  for (const bool to_none : {true, false}) {
    spawn_ranks(2, [&](Communicator& comm) {
      Mlp net;
      fill(*net);
      DistributedDataParallel ddp(net, comm);
      ::torch::optim::SGD optimizer(ddp.parameters(), 0.1);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad(to_none);
        ddp(batch({4, 12}, comm.rank(), step)).square().mean().backward();
        optimizer.step();
      }
      const auto statistics = ddp.statistics();
      EXPECT_EQ(statistics.gradients_copied, to_none ? 18U : 6U);
      EXPECT_EQ(statistics.gradients_in_place, to_none ? 0U : 12U);
      // One storage for all gradients: the default cap holds the whole model.
      const auto parameters = net->parameters();
      for (const auto& parameter : parameters) {
        EXPECT_TRUE(parameter.grad().is_alias_of(parameters.front().grad()));
      }
    });
  }
}

TEST(Ddp, gives_the_same_bits_with_zero_grad_to_none_and_to_zero) {
  std::vector<Tensor> results;
  for (const bool to_none : {true, false}) {
    spawn_ranks(2, [&](Communicator& comm) {
      Mlp net;
      fill(*net);
      DistributedDataParallel ddp(net, comm);
      ::torch::optim::SGD optimizer(ddp.parameters(), 0.1);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad(to_none);
        ddp(batch({4, 12}, comm.rank(), step)).square().mean().backward();
        optimizer.step();
      }
      if (comm.rank() == 0) results.push_back(flat_parameters(*net));
    });
  }
  EXPECT_TRUE(::torch::equal(results[0], results[1]));
}

TEST(Ddp, takes_a_gradient_that_the_user_replaced) {
  spawn_ranks(2, [](Communicator& comm) {
    Mlp net;
    fill(*net);
    DistributedDataParallel ddp(net, comm);
    const auto step = [&] { ddp(batch({4, 12}, comm.rank())).square().mean().backward(); };
    step();
    const Tensor first = flat_gradients(*net);
    for (auto& parameter : net->parameters())
      parameter.mutable_grad() = ::torch::zeros_like(parameter);
    step();
    EXPECT_TRUE(::torch::equal(flat_gradients(*net), first));
  });
}

TEST(Ddp, gives_gradients_the_strides_of_their_parameters) {
  spawn_ranks(2, [](Communicator& comm) {
    ::torch::nn::Conv2d net(::torch::nn::Conv2dOptions(3, 4, 3));
    fill(*net);
    net->weight.set_data(net->weight.contiguous(at::MemoryFormat::ChannelsLast));
    ::torch::nn::Conv2d plain(::torch::nn::Conv2dOptions(3, 4, 3));
    fill(*plain);
    const auto loss = [&](auto& model) { return model(batch({2, 3, 5, 5}, 0)).square().sum(); };
    loss(plain).backward();
    DistributedDataParallel ddp(net, comm);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      loss(ddp).backward();
      EXPECT_EQ(net->weight.grad().strides(), net->weight.strides());
      EXPECT_TRUE(::torch::allclose(net->weight.grad(), plain->weight.grad(), 1e-5, 1e-6));
    }
  });
}

TEST(Ddp, accumulates_where_the_graph_is_kept_and_gradients_are_not_cleared) {
  spawn_ranks(2, [](Communicator& comm) {
    Mlp net;
    net->to(::torch::kDouble);
    fill(*net);
    DistributedDataParallel ddp(net, comm);
    const auto loss = ddp(batch({4, 12}, comm.rank()).to(::torch::kDouble)).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    const Tensor once = flat_gradients(*net).clone();
    loss.backward();
    EXPECT_TRUE(::torch::allclose(flat_gradients(*net), 2 * once, 1e-12, 1e-15));
    EXPECT_EQ(ddp.statistics().steps, 2U);
  });
}

TEST(Ddp, leaves_the_module_as_an_ordinary_one_when_it_is_gone) {
  spawn_ranks(2, [](Communicator& comm) {
    Mlp net;
    fill(*net);
    {
      DistributedDataParallel first(net, comm);
      auto ddp = std::move(first);
      ddp(batch({4, 12}, comm.rank())).sum().backward();
    }
    Mlp plain;
    fill(*plain);
    net->zero_grad();
    net(batch({4, 12}, comm.rank())).sum().backward();
    plain(batch({4, 12}, comm.rank())).sum().backward();
    EXPECT_TRUE(::torch::equal(flat_gradients(*net), flat_gradients(*plain)));
  });
}

// ---- buckets ---------------------------------------------------------------------------------

TEST(Ddp, gives_the_same_gradients_for_every_bucket_size) {
  Tensor expected;
  for (const std::size_t cap : {std::size_t{1}, std::size_t{300}, std::size_t{1} << 20}) {
    std::size_t buckets = 0;
    Tensor result;
    spawn_ranks(3, [&](Communicator& comm) {
      Mlp net;
      net->to(::torch::kDouble);
      fill(*net);
      DistributedDataParallel ddp(net, comm,
                                  {.bucket_cap_bytes = cap, .first_bucket_cap_bytes = cap});
      ddp(batch({4, 12}, comm.rank()).to(::torch::kDouble)).square().mean().backward();
      if (comm.rank() == 0) {
        buckets = ddp.buckets().size();
        result = flat_gradients(*net);
      }
    });
    EXPECT_EQ(buckets, cap == 1 ? 6U : cap == 300 ? 3U : 1U);
    if (!expected.defined()) expected = result;
    // Only the order of three terms may differ.
    EXPECT_TRUE(::torch::allclose(result, expected, 1e-14, 1e-15));
  }
}

struct BackwardsImpl : ::torch::nn::Module {  // used in the order opposite to registration
  ::torch::nn::Linear last = register_module("last", ::torch::nn::Linear(4, 4));
  ::torch::nn::Linear first = register_module("first", ::torch::nn::Linear(4, 4));
  Tensor forward(Tensor x) { return last(first(x)); }
};

TEST(Ddp, rebuilds_buckets_once_in_the_order_in_which_gradients_came) {
  spawn_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<BackwardsImpl>();
    fill(*net);
    DistributedDataParallel ddp(net, comm, {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1});
    const auto names = [&] {
      std::string text;
      for (const auto& bucket : ddp.buckets()) text += bucket.parameters.at(0) + " ";
      return text;
    };
    EXPECT_EQ(names(), "first.bias first.weight last.bias last.weight ");
    const auto step = [&] {
      net->zero_grad();
      ddp(batch({2, 4}, comm.rank())).square().mean().backward();
      return flat_gradients(*net);
    };
    const Tensor before = step();
    const std::string rebuilt = names();
    EXPECT_EQ(rebuilt.find("last"), 0U) << rebuilt;
    EXPECT_GT(rebuilt.find("first"), rebuilt.rfind("last")) << rebuilt;
    EXPECT_TRUE(::torch::equal(step(), before));
    EXPECT_EQ(names(), rebuilt);
  });
}

TEST(Ddp, starts_buckets_while_backward_runs) {
  spawn_ranks(2, [](Communicator& comm) {
    Mlp net;
    fill(*net);
    DistributedDataParallel ddp(net, comm, {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1});
    auto x = batch({4, 12}, comm.rank()).requires_grad_();
    std::uint64_t started = 0;
    // The input's gradient comes after those of fc3 and fc2.
    const auto before = ::torch::tanh(x);
    before.register_hook([&](const Tensor&) { started = ddp.statistics().buckets_started; });
    ddp(before).square().mean().backward();
    EXPECT_GE(started, 4U);
    EXPECT_EQ(ddp.statistics().buckets_started, 6U);
    EXPECT_EQ(ddp.statistics().buckets_started_in_backward, 6U);
  });
}

TEST(Ddp, sends_what_the_formula_says_in_both_layouts) {
  for (const int world : {2, 3, 4}) {
    spawn_ranks(world, [](Communicator& comm) {
      auto net = std::make_shared<BackwardsImpl>();
      fill(*net);
      DistributedDataParallel ddp(net, comm,
                                  {.bucket_cap_bytes = 70, .first_bucket_cap_bytes = 17});
      std::uint64_t expected = 0;
      for (int step = 0; step < 3; ++step) {
        for (const auto& bucket : ddp.buckets()) expected += bucket.formula_bytes_sent;
        ddp(batch({2, 4}, comm.rank())).square().mean().backward();
      }
      const auto statistics = ddp.statistics();
      EXPECT_GT(expected, 0U);
      EXPECT_EQ(statistics.formula_bytes_sent, expected);
      EXPECT_EQ(statistics.bytes_sent, expected);
    });
  }
}

// ---- several backwards -----------------------------------------------------------------------

struct TwoHeadsImpl : ::torch::nn::Module {
  ::torch::nn::Linear body = register_module("body", ::torch::nn::Linear(4, 4));
  ::torch::nn::Linear left = register_module("left", ::torch::nn::Linear(4, 1));
  ::torch::nn::Linear right = register_module("right", ::torch::nn::Linear(4, 1));
  Tensor forward(Tensor x, bool use_left) { return use_left ? left(body(x)) : right(body(x)); }
};

TEST(Ddp, makes_one_step_of_the_backwards_that_it_expects) {
  spawn_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<TwoHeadsImpl>();
    net->to(::torch::kDouble);
    fill(*net);
    auto plain = std::make_shared<TwoHeadsImpl>();
    plain->to(::torch::kDouble);
    fill(*plain);
    DistributedDataParallel ddp(net, comm, {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1});
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      ddp.expect_backwards(3);
      for (int part = 0; part < 3; ++part) {
        // `left` gets its gradient in an earlier backward than the last.
        const auto x = batch({2, 4}, comm.rank(), part).to(::torch::kDouble);
        ddp(x, part == 0).square().sum().backward();
        EXPECT_EQ(ddp.statistics().steps, static_cast<std::uint64_t>(step + (part == 2)));
        if (part == 0) {
          EXPECT_THROW(ddp.expect_backwards(2), UsageError);
        }
      }
    }
    EXPECT_EQ(ddp.statistics().buckets_started, 12U);
    for (int part = 0; part < 3; ++part) {
      for (int rank = 0; rank < 2; ++rank) {
        const auto x = batch({2, 4}, rank, part).to(::torch::kDouble);
        (plain->forward(x, part == 0).square().sum() / 2).backward();
      }
    }
    EXPECT_TRUE(::torch::allclose(flat_gradients(*net), flat_gradients(*plain), 1e-12, 1e-14));
    EXPECT_THROW(ddp.expect_backwards(0), UsageError);
  });
}

TEST(Ddp, judges_missing_gradients_after_the_last_expected_backward) {
  const auto texts = errors_of<CommError>(2, [](Communicator& comm) {
    auto net = std::make_shared<TwoHeadsImpl>();
    DistributedDataParallel ddp(net, comm);
    ddp.expect_backwards(2);
    EXPECT_NO_THROW(ddp(batch({2, 4}, 0), true).sum().backward());
    ddp(batch({2, 4}, 0), true).sum().backward();
  });
  expect_all_contain(texts, "right.weight, right.bias");
}

TEST(Ddp, does_not_take_autograd_grad_for_a_backward) {
  spawn_ranks(2, [](Communicator& comm) {
    Mlp net;
    fill(*net);
    DistributedDataParallel ddp(net, comm);
    auto x = batch({4, 12}, comm.rank()).requires_grad_();
    const auto y = ddp(x).square().sum();
    const auto slope = ::torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true);
    EXPECT_TRUE(slope[0].defined());
    EXPECT_EQ(ddp.statistics().steps, 0U);
    y.backward();
    EXPECT_EQ(ddp.statistics().steps, 1U);
  });
}

// Runs `module` again in backward, as checkpointing does, by a backward inside of backward.
struct Checkpoint : ::torch::autograd::Function<Checkpoint> {
  static Tensor forward(::torch::autograd::AutogradContext* context,
                        Tensor x,
                        std::int64_t module) {
    context->save_for_backward({x});
    context->saved_data["module"] = module;
    return linear(module).forward(x);
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                   ::torch::autograd::variable_list gradients) {
    auto x = context->get_saved_variables()[0].detach().requires_grad_();
    const ::torch::AutoGradMode on(true);
    linear(context->saved_data["module"].toInt()).forward(x).backward(gradients[0]);
    return {x.grad(), Tensor()};
  }
  static ::torch::nn::LinearImpl& linear(std::int64_t address) {
    return *reinterpret_cast<::torch::nn::LinearImpl*>(address);
  }
  static Tensor of(const Tensor& x, ::torch::nn::Linear& linear) {
    return apply(x, reinterpret_cast<std::int64_t>(linear.get()));
  }
};

struct Wrapped {  // no tensor that for_each_tensor could find
  Tensor value;
};

struct CheckpointedImpl : ::torch::nn::Module {
  ::torch::nn::Linear a = register_module("a", ::torch::nn::Linear(4, 4));
  ::torch::nn::Linear b = register_module("b", ::torch::nn::Linear(4, 4));
  Wrapped forward(Tensor x, bool checkpointed) {
    x.requires_grad_();
    if (!checkpointed) return {b(::torch::tanh(a(x)))};
    return {Checkpoint::of(::torch::tanh(Checkpoint::of(x, a)), b)};
  }
};

struct CheckpointedTensorImpl : CheckpointedImpl {
  ::torch::nn::Linear unused = register_module("unused", ::torch::nn::Linear(4, 4));
  Tensor forward(Tensor x, bool with_all) {
    const Tensor y = CheckpointedImpl::forward(std::move(x), true).value;
    return with_all ? Checkpoint::of(y, unused) : y;
  }
};

TEST(Ddp, ends_a_step_with_the_outermost_backward) {
  spawn_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<CheckpointedImpl>();
    fill(*net);
    DistributedDataParallel ddp(net, comm, {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1});
    std::vector<Tensor> results;
    for (const bool checkpointed : {false, true, true}) {
      net->zero_grad();
      ddp(batch({2, 4}, comm.rank()), checkpointed).value.square().sum().backward();
      results.push_back(flat_gradients(*net));
    }
    EXPECT_EQ(ddp.statistics().steps, 3U);
    EXPECT_TRUE(::torch::equal(results[1], results[0]));
    EXPECT_TRUE(::torch::equal(results[2], results[0]));
  });
}

TEST(Ddp, misses_a_gradient_also_where_all_others_come_from_inner_backwards) {
  std::latch first_step_done(2);
  const auto texts = errors_of<CommError>(2, [&](Communicator& comm) {
    auto net = std::make_shared<CheckpointedTensorImpl>();
    fill(*net);
    DistributedDataParallel ddp(net, comm);
    ddp(batch({2, 4}, 0), true).sum().backward();
    EXPECT_EQ(ddp.statistics().steps, 1U);
    first_step_done.arrive_and_wait();
    net->zero_grad();
    ddp(batch({2, 4}, 0), comm.rank() == 0).sum().backward();
  });
  expect_all_contain(texts, "unused.weight, unused.bias");
  expect_all_contain(texts, "rank 1");
}

// ---- buffers ---------------------------------------------------------------------------------

TEST(Ddp, gives_every_rank_the_buffers_of_rank_0_before_a_training_forward) {
  spawn_ranks(2, [](Communicator& comm) {
    Cnn net;
    fill(*net);
    DistributedDataParallel ddp(net, comm);
    Cnn alone;
    fill(*alone);
    for (int step = 0; step < 2; ++step) {
      // Rank 0 alone decides what this rank starts from.
      (void)alone(batch({4, 1, 8, 8}, step == 0 ? 0 : comm.rank(), step));
      (void)ddp(batch({4, 1, 8, 8}, comm.rank(), step));
    }
    EXPECT_TRUE(::torch::equal(net->bn1->running_mean, alone->bn1->running_mean));
    EXPECT_EQ(net->bn1->num_batches_tracked.item<std::int64_t>(), 2);
    // Evaluation is each rank's own affair.
    const ::torch::NoGradGuard no_grad;
    if (comm.rank() == 0) (void)ddp(batch({4, 1, 8, 8}, 0));
  });
}

TEST(Ddp, lets_two_forwards_with_batch_norm_be_followed_by_one_backward) {
  spawn_ranks(2, [](Communicator& comm) {
    Cnn net;
    fill(*net);
    Cnn alone;
    fill(*alone);
    DistributedDataParallel ddp(net, comm);
    const auto loss = [&](auto& model, int rank) {
      const auto first = model(batch({4, 1, 8, 8}, rank, 0));
      return (first + model(batch({4, 1, 8, 8}, rank, 1))).square().mean();
    };
    loss(ddp, comm.rank()).backward();
    for (int rank = 0; rank < 2; ++rank) (loss(alone, rank) / 2).backward();
    EXPECT_TRUE(::torch::allclose(flat_gradients(*net), flat_gradients(*alone), 1e-4, 1e-6));
  });
}

// ---- errors ----------------------------------------------------------------------------------

struct Plain : ::torch::nn::Module {
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(3, 4));
  Tensor forward(const Tensor& x) { return fc(x); }
};

template <typename Change>
std::vector<std::string> errors_of_models(Change&& change) {
  return errors_of<UsageError>(3, [&](Communicator& comm) {
    auto net = std::make_shared<Plain>();
    change(*net, comm.rank());
    DistributedDataParallel ddp(net, comm);
  });
}

TEST(Ddp, refuses_different_models_with_one_error_on_every_rank) {
  using Net = Plain;
  const std::vector<std::pair<std::string, std::function<void(Net&, int)>>> cases{
      {"parameter fc.weight is f32 [4, 3] strides [3, 1] trainable on rank 0, but f32 [4, 5] "
       "strides "
       "[5, 1] trainable on rank 2",
       [](Net& net, int rank) {
         net.fc = net.replace_module("fc", ::torch::nn::Linear(rank == 2 ? 5 : 3, 4));
       }},
      {"parameter fc.weight is f32",
       [](Net& net, int rank) {
         if (rank == 1) net.fc->weight.set_data(net.fc->weight.to(::torch::kDouble));
       }},
      {"trainable on rank 0, but f32 [4] strides [1] frozen on ranks 1, 2",
       [](Net& net, int rank) {
         if (rank != 0) net.fc->bias.requires_grad_(false);
       }},
      {"strides [3, 1] trainable on rank 0, but f32 [4, 3] strides [1, 4]",
       [](Net& net, int rank) {
         if (rank == 2) net.fc->weight.set_data(net.fc->weight.t().contiguous().t());
       }},
      {"buffer extra (f32 [2] strides [1] frozen) is there on rank 2, but not on rank 0",
       [](Net& net, int rank) {
         if (rank == 2) net.register_buffer("extra", ::torch::zeros({2}));
       }},
      {"parameter fc.weight", [](Net& net, int rank) {
         if (rank == 1) net.unregister_module("fc");
       }}};
  for (const auto& [part, change] : cases) {
    const auto texts = errors_of_models(change);
    expect_all_contain(texts, part);
    EXPECT_EQ(texts[1], texts[0]);
    EXPECT_EQ(texts[2], texts[0]);
  }
}

TEST(Ddp, refuses_what_it_cannot_average) {
  const auto refused = [](const std::function<void(Plain&)>& change, DdpOptions options) {
    const auto texts = errors_of<UsageError>(2, [&](Communicator& comm) {
      auto net = std::make_shared<Plain>();
      change(*net);
      DistributedDataParallel ddp(net, comm, options);
    });
    EXPECT_EQ(texts[1], texts[0]);
    return texts[0];
  };
  const auto keep = [](Plain&) {};
  EXPECT_NE(refused(keep, {.bucket_cap_bytes = 0}).find("bucket_cap_bytes is 0"),
            std::string::npos);
  EXPECT_NE(refused(keep, {.first_bucket_cap_bytes = 0}).find("first_bucket_cap_bytes is 0"),
            std::string::npos);
  EXPECT_NE(refused(
                [](auto& net) {
                  for (auto& p : net.parameters()) p.requires_grad_(false);
                },
                {})
                .find("no parameter that requires grad"),
            std::string::npos);
  EXPECT_NE(
      refused([](auto& net) { net.to(::torch::kComplexFloat); }, {}).find("has type ComplexFloat"),
      std::string::npos);
  EXPECT_NE(
      refused([](auto& net) { net.register_buffer("m", ::torch::zeros({1}, ::torch::kMeta)); }, {})
          .find("buffer m is on meta"),
      std::string::npos);
}

TEST(Ddp, turns_the_mistake_of_one_rank_into_an_error_of_all) {
  const auto texts = errors_of<UsageError>(2, [](Communicator& comm) {
    auto net = std::make_shared<Plain>();
    DistributedDataParallel ddp(net, comm, {.bucket_cap_bytes = comm.rank() == 1 ? 0U : 1024U});
  });
  EXPECT_EQ(texts[1], texts[0]);
  expect_all_contain(texts, "option bucket_cap_bytes is 1024 on rank 0, but 0 on rank 1");
}

TEST(Ddp, names_a_missing_gradient_on_every_rank_in_the_same_step) {
  std::vector<CommErrc> codes(3, CommErrc::kTimeout);
  std::latch built(3);  // abort also ends calls that a slower rank is still in
  const auto texts = errors_of<CommError>(3, [&](Communicator& comm) {
    auto net = std::make_shared<TwoHeadsImpl>();
    DistributedDataParallel ddp(net, comm);
    const auto x = batch({2, 4}, comm.rank());
    const auto loss =
        comm.rank() == 1 ? ddp(x, true).sum() : ddp(x, true).sum() + ddp(x, false).sum();
    built.arrive_and_wait();
    try {
      loss.backward();  // its type must survive autograd
    } catch (const CommError& error) {
      codes[place_of(comm)] = error.code();
      throw;
    }
  });
  expect_all_contain(texts, "right.weight, right.bias");
  expect_all_contain(texts, "rank 1: backward ended without a gradient");
  for (const auto code : codes) EXPECT_EQ(code, CommErrc::kAborted);
}

TEST(Ddp, lets_a_comm_error_leave_backward_with_its_type) {
  std::latch built(2);
  const auto texts = errors_of<CommError>(2, [&](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    const auto loss = ddp(batch({4, 12}, 0)).sum();
    built.arrive_and_wait();
    if (comm.rank() == 0) return comm.abort("the user has had enough");
    EXPECT_THROW(loss.backward(), CommError);
    ddp(batch({4, 12}, 0)).sum().backward();  // poisoned: the cause is quoted again
  });
  EXPECT_NE(texts[1].find("the user has had enough"), std::string::npos) << texts[1];
}

TEST(Ddp, tells_all_ranks_that_a_backward_died_on_one) {
  const auto texts = errors_of<CommError>(2, [](Communicator& comm) {
    Mlp net;
    fill(*net);
    DistributedDataParallel ddp(net, comm, {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1});
    const auto x = batch({4, 12}, comm.rank()).requires_grad_();
    const auto before = ::torch::tanh(x);
    if (comm.rank() == 1) {
      net->fc1->weight.register_hook(
          [](const Tensor&) { throw std::runtime_error("a user's bug"); });
    }
    try {
      ddp(before).sum().backward();
    } catch (const CommError&) {
      throw;
    } catch (const std::runtime_error&) {
      (void)ddp(before);  // goes on as if nothing had happened
    }
  });
  expect_all_contain(texts, "rank 1: the last backward ended by an exception");
}

TEST(Ddp, notices_parameters_that_changed_after_wrapping) {
  using Net = Plain;
  const std::vector<std::pair<std::string, std::function<void(Net&)>>> cases{
      {"fc.bias no longer requires grad", [](Net& net) { net.fc->bias.requires_grad_(false); }},
      {"late was added", [](Net& net) { net.register_parameter("late", ::torch::ones({1})); }},
      {"fc.weight has another type", [](Net& net) { net.fc->to(::torch::kDouble); }},
      {"fc.weight was removed", [](Net& net) { net.unregister_module("fc"); }},
      {"fc.weight was replaced",
       [](Net& net) { net.replace_module("fc", ::torch::nn::Linear(3, 4)); }}};
  for (const auto& [part, change] : cases) {
    const auto texts = errors_of<UsageError>(1, [&](Communicator& comm) {
      auto net = std::make_shared<Net>();
      DistributedDataParallel ddp(net, comm);
      change(*net);
      (void)ddp(batch({2, 3}, 0));
    });
    expect_all_contain(texts, part);
  }
}

TEST(Ddp, names_a_sparse_gradient) {
  const auto texts = errors_of<CommError>(2, [](Communicator& comm) {
    ::torch::nn::Embedding net(::torch::nn::EmbeddingOptions(5, 3).sparse(true));
    DistributedDataParallel ddp(net, comm);
    ddp(::torch::tensor({1, 2})).sum().backward();
  });
  expect_all_contain(texts, "the gradient of weight is sparse");
}

// ---- shape of the door -----------------------------------------------------------------------

struct ManyOutputsImpl : ::torch::nn::Module {
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(4, 4));
  std::tuple<Tensor, std::vector<Tensor>, std::string> forward(const Tensor& x,
                                                               int times,
                                                               std::unique_ptr<int> moved) {
    return {fc(x) * times, {fc(x) * *moved}, "text"};
  }
};

struct NothingImpl : ::torch::nn::Module {
  Tensor weight = register_parameter("weight", ::torch::ones({1}));
  void forward(double factor) { (weight * factor).backward(); }
};

TEST(Ddp, forwards_any_arguments_and_any_result) {
  spawn_ranks(2, [](Communicator& comm) {
    DistributedDataParallel many(std::make_shared<ManyOutputsImpl>(), comm);
    auto [sum, list, text] = many(batch({2, 4}, 0), 2, std::make_unique<int>(3));
    (sum.sum() + list.at(0).sum()).backward();
    EXPECT_EQ(text, "text");
    DistributedDataParallel nothing(std::make_shared<NothingImpl>(), comm);
    nothing(1.0 + comm.rank());
    EXPECT_EQ(nothing->weight.grad().item<double>(), 1.5);
  });
}

TEST(Ddp, wraps_holders_sequentials_and_shared_pointers_without_renaming) {
  spawn_ranks(2, [](Communicator& comm) {
    ::torch::nn::Sequential sequential(::torch::nn::Linear(4, 3), ::torch::nn::ReLU(),
                                       ::torch::nn::Linear(3, 2));
    DistributedDataParallel ddp(sequential, comm,
                                {.bucket_cap_bytes = 25 << 20, .first_bucket_cap_bytes = 1 << 20});
    static_assert(
        std::is_same_v<decltype(ddp), DistributedDataParallel<::torch::nn::SequentialImpl>>);
    ddp(batch({2, 4}, comm.rank())).sum().backward();
    std::vector<std::string> names;
    for (const auto& item : sequential->named_parameters()) names.push_back(item.key());
    EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"}));
    std::stringstream file;
    ::torch::save(sequential, file);
    ::torch::nn::Sequential plain(::torch::nn::Linear(4, 3), ::torch::nn::ReLU(),
                                  ::torch::nn::Linear(3, 2));
    ::torch::load(plain, file);
    EXPECT_TRUE(::torch::equal(flat_parameters(*plain), flat_parameters(*sequential)));
  });
}

TEST(Ddp, counts_a_shared_parameter_once) {
  spawn_ranks(2, [](Communicator& comm) {
    struct SharedImpl : ::torch::nn::Module {
      ::torch::nn::Linear in = register_module("in", ::torch::nn::Linear(4, 4));
      ::torch::nn::Linear again = register_module("again", in);
      Tensor forward(const Tensor& x) { return again(::torch::tanh(in(x))); }
    };
    auto net = std::make_shared<SharedImpl>();
    net->to(::torch::kDouble);
    fill(*net);
    DistributedDataParallel ddp(net, comm);
    EXPECT_EQ(ddp.parameters().size(), 2U);
    ASSERT_EQ(ddp.buckets().size(), 1U);
    EXPECT_EQ(ddp.buckets()[0].parameters, (std::vector<std::string>{"in.bias", "in.weight"}));
    EXPECT_EQ(ddp.buckets()[0].count, 20U);
    auto plain = std::make_shared<SharedImpl>();
    plain->to(::torch::kDouble);
    fill(*plain);
    for (int rank = 0; rank < 2; ++rank) {
      (plain->forward(batch({2, 4}, rank).to(::torch::kDouble)).square().sum() / 2).backward();
    }
    ddp(batch({2, 4}, comm.rank()).to(::torch::kDouble)).square().sum().backward();
    EXPECT_TRUE(::torch::allclose(flat_gradients(*net), flat_gradients(*plain), 1e-12, 1e-14));
  });
}

}  // namespace
}  // namespace paceline
