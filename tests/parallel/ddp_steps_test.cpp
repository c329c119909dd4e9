// SPDX-License-Identifier: Apache-2.0
// What happens in a step: buckets, backwards within and after each other, buffers.
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::Cnn;
using tests::errors_of;
using tests::expect_all_contain;
using tests::fill;
using tests::flat_gradients;
using tests::Mlp;
using tests::TwoHeadsImpl;
using ::torch::Tensor;

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
    EXPECT_TRUE(tests::close(result, expected, tests::kDoubleTolerance));
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
    EXPECT_TRUE(
        tests::close(flat_gradients(*net), flat_gradients(*plain), tests::kDoubleTolerance));
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

// The same layer twice: two gradients for each parameter, each from a backward of its own.
struct TiedCheckpointsImpl : ::torch::nn::Module {
  ::torch::nn::Linear a = register_module("a", ::torch::nn::Linear(4, 4));
  ::torch::nn::Linear last_to_come = register_module("last_to_come", ::torch::nn::Linear(4, 4));
  Tensor forward(const Tensor& x, bool checkpointed) {
    const Tensor y = last_to_come(x);
    if (!checkpointed) return a(::torch::tanh(a(y)));
    return Checkpoint::of(::torch::tanh(Checkpoint::of(y, a)), a);
  }
};
struct WrappedTiedCheckpointsImpl : TiedCheckpointsImpl {
  Wrapped forward(const Tensor& x, bool checkpointed) {
    return {TiedCheckpointsImpl::forward(x, checkpointed)};
  }
};
const Tensor& value_of(const Tensor& output) { return output; }
const Tensor& value_of(const Wrapped& output) { return output.value; }

template <typename Net>
void expect_shared_checkpoints_to_train() {
  spawn_ranks(2,
              [](Communicator& comm) {
                auto net = std::make_shared<Net>();
                fill(*net);
                DistributedDataParallel ddp(net, comm,
                                            {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1});
                std::vector<Tensor> results;
                for (const bool checkpointed : {false, true, true}) {
                  net->zero_grad();
                  value_of(ddp(batch({2, 4}, comm.rank()), checkpointed)).square().sum().backward();
                  results.push_back(flat_gradients(*net));
                }
                EXPECT_EQ(ddp.statistics().steps, 3U);
                EXPECT_TRUE(::torch::equal(results[1], results[0]));
                EXPECT_TRUE(::torch::equal(results[2], results[0]));
              },
              {.link = LocalLink::kShm});
}

TEST(Ddp, trains_layers_that_several_checkpoints_share_where_ranks_share_memory) {
  expect_shared_checkpoints_to_train<TiedCheckpointsImpl>();
  expect_shared_checkpoints_to_train<WrappedTiedCheckpointsImpl>();
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
    EXPECT_TRUE(tests::close(flat_gradients(*net), flat_gradients(*alone)));
  });
}

}  // namespace
}  // namespace paceline
