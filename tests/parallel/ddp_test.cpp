// SPDX-License-Identifier: Apache-2.0
// Numbers, gradients as views of buckets, and the shape of the door.
#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::Cnn;
using tests::fill;
using tests::flat_gradients;
using tests::flat_parameters;
using tests::gradient_bound;
using tests::kUnit64;
using tests::Mlp;
using tests::place_of;
using ::torch::Tensor;

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
      EXPECT_TRUE(tests::close(net->weight.grad(), plain->weight.grad()));
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
    EXPECT_TRUE(tests::close(flat_gradients(*net), 2 * once, tests::kDoubleTolerance));
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
    EXPECT_TRUE(
        tests::close(flat_gradients(*net), flat_gradients(*plain), tests::kDoubleTolerance));
  });
}

}  // namespace
}  // namespace paceline
