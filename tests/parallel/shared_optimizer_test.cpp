// SPDX-License-Identifier: Apache-2.0
// Shared optimizers: the bits of DDP and LibTorch's optimizers, and what they refuse.
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "paceline/parallel/shard_layout.h"
#include "shared_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::Cnn;
using tests::expect_all_contain;
using tests::fill;
using tests::flat_gradients;
using tests::flat_parameters;
using tests::kUnit32;
using tests::Mlp;
using tests::place_of;
using tests::Saved;
using tests::set_gradients;
using tests::shared_errors;
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

// Several buckets and several rounds in one of them; the order of arrival is not that of the
// registration, so the layout changes after the first step.
struct WideImpl : ::torch::nn::Module {
  ::torch::nn::Linear last = register_module("last", ::torch::nn::Linear(1111, 3));
  ::torch::nn::Linear first = register_module("first", ::torch::nn::Linear(12, 1001));
  ::torch::nn::Linear middle = register_module("middle", ::torch::nn::Linear(1001, 1111));
  Tensor forward(const Tensor& x) { return last(::torch::tanh(middle(::torch::tanh(first(x))))); }
};
TORCH_MODULE(Wide);

TEST(SharedSgd, gives_the_bits_of_ddp_when_buckets_take_several_rounds_and_move) {
  for (const int world : {1, 2, 3}) {
    expect_the_bits_of_ddp<Wide>(world, {.lr = 0.1, .momentum = 0.9}, {3, 12});
  }
}

// Calls of the gradients in a step, which are where a rank's shard is copied or summed.
std::int64_t calls_of_gradients(int world) {
  std::atomic<std::int64_t> count = 0;
  with_shared_memory(world, [&](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm, {.lr = 0.1, .weight_decay = 0.1});
    net(batch({4, 12}, comm.rank())).sum().backward();
    comm.start_ledger();
    shared.step();
    for (const auto& call : comm.take_ledger().calls) {
      if (call.label.ends_with(" gradients")) ++count;
    }
  });
  return count / world;
}

TEST(SharedSgd, reads_gradients_where_they_lie_if_there_is_one_rank) {
  EXPECT_EQ(calls_of_gradients(1), 0);
  EXPECT_EQ(calls_of_gradients(2), 1);
}

TEST(SharedSgd, follows_rates_of_groups_that_change_between_steps) {
  with_shared_memory(2, [](Communicator& comm) {
    Mlp of_ddp, of_shared;
    fill(*of_ddp);
    fill(*of_shared);
    DistributedDataParallel ddp(of_ddp, comm);
    using Options = ::torch::optim::SGDOptions;
    std::vector<Tensor> biases{of_ddp->fc1->bias, of_ddp->fc2->bias, of_ddp->fc3->bias};
    std::vector<Tensor> weights{of_ddp->fc1->weight, of_ddp->fc2->weight, of_ddp->fc3->weight};
    std::vector<::torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(weights, std::make_unique<Options>(Options(0.1).weight_decay(0.1)));
    groups.emplace_back(biases, std::make_unique<Options>(Options(0.3)));
    ::torch::optim::SGD sgd(groups, Options(0.1));
    SharedSGD shared(of_shared, comm,
                     {.lr = 0.1,
                      .weight_decay = 0.1,
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
      sgd.param_groups()[1].options().set_lr(0.3 / (step + 2));
      shared.set_lr(1, 0.3 / (step + 2));
    }
    EXPECT_EQ(shared.lr(0), 0.1);
    EXPECT_EQ(shared.lr(1), 0.3 / 5);
    EXPECT_EQ(shared.weight_decay(1), 0.0);
    EXPECT_EQ(shared.group_count(), 2U);
    EXPECT_THROW(shared.set_lr(2, 0.1), UsageError);
    EXPECT_THROW(shared.set_lr(0, -0.1), UsageError);
  });
}

// One step of LibTorch's optimizer from the state that `before` holds.
template <typename Optimizer, typename State, typename Options>
State step_of_torch(Tensor& parameter,
                    const Tensor& mean,
                    Saved& before,
                    const std::string& name,
                    int step,
                    Options options) {
  parameter.mutable_grad() = mean;
  Optimizer adam(std::vector<Tensor>{parameter}, options);
  auto state = std::make_unique<State>();
  state->step(step);
  state->exp_avg(before("exp_avg." + name).clone());
  state->exp_avg_sq(before("exp_avg_sq." + name).clone());
  adam.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  adam.step();
  return static_cast<State&>(*adam.state()[parameter.unsafeGetTensorImpl()]);
}

// The bounds that SharedAdam's docstring derives.
struct AdamBound {
  Tensor m, v, p;
};

AdamBound bound_of(const SharedAdamOptions& o,
                   int t,
                   const Tensor& g,
                   const Tensor& p0,
                   const Tensor& m0,
                   const Tensor& m1,
                   const Tensor& v1,
                   const Tensor& p1) {
  const double u = kUnit32;
  const Tensor big = g.abs() + (o.decoupled_weight_decay ? 0.0 : o.weight_decay) * p0.abs();
  const Tensor dm = 8 * u * (m0.abs() + big);
  const Tensor dv = 12 * u * v1 + (1 - o.betas[1]) * 8 * u * big.square();
  const Tensor d = (v1 / (1 - std::pow(o.betas[1], t))).sqrt() + o.eps;
  const double s = o.lr / (1 - std::pow(o.betas[0], t));
  const Tensor dp = s * dm / d + s * m1.abs() / d * (20 * u + dv / (2 * v1)) + 4 * u * p1.abs();
  return {1.01 * dm, 1.01 * dv, 1.01 * dp};
}

template <typename Optimizer, typename State, typename Options>
void expect_adam_within_bounds(const SharedAdamOptions& o, const Options& options) {
  with_shared_memory(2, [&](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedAdam shared(net, comm, o);
    for (int step = 0; step < 6; ++step) {
      Saved before(shared);
      std::vector<Tensor> old;
      for (const auto& parameter : net->parameters()) old.push_back(parameter.detach().clone());
      comm.barrier();
      set_gradients(*net, comm.rank(), step);
      shared.step();
      Saved after(shared);
      std::size_t i = 0;
      for (const auto& item : net->named_parameters()) {
        const Tensor mean =
            (batch(old[i].sizes(), 0, step) * 0.1 + batch(old[i].sizes(), 1, step) * 0.1) / 2;
        Tensor expected = old[i].clone();
        auto state =
            step_of_torch<Optimizer, State>(expected, mean, before, item.key(), step, options);
        const auto wide = [](const Tensor& x) { return x.detach().to(at::kDouble); };
        const AdamBound bound =
            bound_of(o, step + 1, wide(mean), wide(old[i]), wide(before("exp_avg." + item.key())),
                     wide(state.exp_avg()), wide(state.exp_avg_sq()), wide(expected));
        const auto within = [&](const Tensor& a, const Tensor& b, const Tensor& limit) {
          return ((wide(a) - wide(b)).abs() <= limit).all().template item<bool>();
        };
        EXPECT_TRUE(within(after("exp_avg." + item.key()), state.exp_avg(), bound.m)) << step;
        EXPECT_TRUE(within(after("exp_avg_sq." + item.key()), state.exp_avg_sq(), bound.v)) << step;
        EXPECT_TRUE(within(item.value(), expected, bound.p)) << step << item.key();
        EXPECT_FALSE(::torch::equal(item.value(), old[i]));
        ++i;
      }
      comm.barrier();
    }
  });
}

TEST(SharedAdam, is_within_the_derived_bound_of_torch_in_each_step) {
  for (const double decay : {0.0, 0.05}) {
    expect_adam_within_bounds<::torch::optim::Adam, ::torch::optim::AdamParamState>(
        {.lr = 0.01, .weight_decay = decay}, ::torch::optim::AdamOptions(0.01).weight_decay(decay));
  }
  expect_adam_within_bounds<::torch::optim::AdamW, ::torch::optim::AdamWParamState>(
      {.lr = 0.01, .betas = {0.8, 0.99}, .weight_decay = 0.05, .decoupled_weight_decay = true},
      ::torch::optim::AdamWOptions(0.01).betas({0.8, 0.99}).weight_decay(0.05));
}

TEST(SharedOptimizer, clips_by_the_norm_of_the_mean_with_the_same_bits_everywhere) {
  for (const int world : {1, 2, 3}) {
    std::vector<double> norms(static_cast<std::size_t>(world));
    with_shared_memory(world, [&](Communicator& comm) {
      Mlp net;
      fill(*net);
      SharedSGD shared(net, comm, {.lr = 0.5});
      const Tensor before = flat_parameters(*net);
      comm.barrier();
      set_gradients(*net, comm.rank(), 0);
      Tensor mean = ::torch::zeros_like(before);
      Mlp other;
      for (int rank = 0; rank < world; ++rank) {
        set_gradients(*other, rank, 0);
        mean += flat_gradients(*other).to(at::kFloat) / world;
      }
      const double norm = shared.clip_grad_norm(0.25);
      norms[place_of(comm)] = norm;
      const double expected = mean.to(at::kDouble).norm().item<double>();
      EXPECT_NEAR(norm, expected, 1e-5 * expected);
      ASSERT_GT(norm, 0.25);
      shared.step();
      const Tensor moved = (flat_parameters(*net) - before).to(at::kDouble);
      EXPECT_NEAR(moved.norm().item<double>(), 0.5 * 0.25, 1e-5);
      EXPECT_TRUE(::torch::allclose(moved, -0.5 * 0.25 / norm * mean.to(at::kDouble), 1e-4, 1e-6));
      comm.barrier();
      set_gradients(*net, comm.rank(), 1);
      EXPECT_THROW(static_cast<void>(shared.clip_grad_norm(0)), UsageError);
      // A norm below the limit leaves the mean as it is.
      const Tensor start = flat_parameters(*net);
      shared.clip_grad_norm(1e6);
      shared.step();
      EXPECT_FALSE(::torch::equal(flat_parameters(*net), start));
    });
    for (const double norm : norms) EXPECT_EQ(norm, norms.front());
  }
}

TEST(SharedOptimizer, clips_by_a_norm_that_is_no_number_as_libtorch_does) {
  with_shared_memory(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    if (comm.rank() == 1) net->fc1->bias.mutable_grad().fill_(NAN);
    EXPECT_TRUE(std::isnan(shared.clip_grad_norm(1)));
    shared.step();
    EXPECT_TRUE(flat_parameters(*net).isnan().all().item<bool>());
  });
}

TEST(SharedOptimizer, refuses_gradients_that_changed_after_clipping) {
  const auto texts = shared_errors<UsageError>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    shared.clip_grad_norm(1);
    net->fc2->weight.mutable_grad().add_(1);
    shared.step();
  });
  expect_all_contain(texts, "changed since clip_grad_norm()");
}

TEST(SharedOptimizer, saves_its_state_whole_and_loads_it_in_another_world) {
  std::stringstream archive, expected_archive;
  const SharedSgdOptions options{.lr = 0.1, .momentum = 0.9};
  std::vector<Tensor> after(2);
  Mlp start;
  const auto train = [&](SharedSGD& shared, Mlp& net, int step) {
    shared.zero_grad();
    net(batch({4, 12}, 0, step)).square().mean().backward();  // the same on all ranks
    shared.step();
  };
  with_shared_memory(2, [&](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm, options);
    for (int step = 0; step < 3; ++step) train(shared, net, step);
    shared.set_lr(0.05);
    ::torch::serialize::OutputArchive out;
    shared.save(out);
    if (comm.rank() == 0) out.save_to(archive);
    const ::torch::NoGradGuard no_grad;
    if (comm.rank() == 0) {
      for (const auto& item : net->named_parameters()) {
        start->named_parameters()[item.key()].copy_(item.value());
      }
    }
    comm.barrier();
    const at::AutoGradMode with_grad(true);
    train(shared, net, 3);
    after[place_of(comm)] = flat_parameters(*net);
  });
  const std::string bytes = archive.str();
  with_shared_memory(3, [&](Communicator& comm) {
    Mlp net;
    {
      const ::torch::NoGradGuard no_grad;
      for (const auto& item : start->named_parameters()) {
        net->named_parameters()[item.key()].copy_(item.value());
      }
    }
    SharedSGD shared(net, comm, options);
    std::stringstream stream(bytes);
    ::torch::serialize::InputArchive in;
    in.load_from(stream);
    shared.load(in);
    EXPECT_EQ(shared.steps(), 3);
    EXPECT_EQ(shared.lr(), 0.05);
    train(shared, net, 3);
    EXPECT_TRUE(::torch::allclose(flat_parameters(*net), after[0], 1e-6, 1e-7));
  });
  const auto texts = shared_errors<UsageError>(2, [&](Communicator& comm) {
    Mlp net;
    SharedAdam adam(net, comm);
    std::stringstream stream(bytes);
    ::torch::serialize::InputArchive in;
    in.load_from(stream);
    adam.load(in);
  });
  expect_all_contain(texts, "it was saved by SharedSGD");
}

TEST(SharedOptimizer, refuses_edits_in_place_by_name_but_for_write_once) {
  const auto texts = shared_errors<UsageError>(2, [](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm);
    shared.write_once([&] {
      EXPECT_EQ(comm.rank(), 0);
      const ::torch::NoGradGuard no_grad;
      net->fc1->bias.fill_(3);
    });
    EXPECT_TRUE((net->fc1->bias == 3).all().item<bool>());  // on all ranks
    set_gradients(*net, comm.rank(), 0);
    shared.step();
    comm.barrier();
    {
      const ::torch::NoGradGuard no_grad;
      net->fc2->weight.mul_(1);
    }
    shared.step();
  });
  expect_all_contain(texts, "SharedSGD: changed outside of step(): fc2.weight;");
}

TEST(SharedOptimizer, tells_all_ranks_if_one_has_edited_a_parameter) {
  const auto texts = shared_errors<CommError>(3, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    const ::torch::NoGradGuard no_grad;
    if (comm.rank() == 1) net->fc2->weight.mul_(1);
    shared.step();
  });
  expect_all_contain(texts, "fc2.weight");
}

TEST(SharedOptimizer, passes_on_what_the_function_of_write_once_throws) {
  const auto texts = shared_errors<std::exception>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    shared.write_once([] { throw std::runtime_error("no such file"); });
  });
  EXPECT_EQ(texts[0], "no such file");
  EXPECT_EQ(texts[1], "SharedSGD: write_once: it failed on rank 0");
}

TEST(SharedOptimizer, makes_autograd_refuse_graphs_from_before_a_step) {
  with_shared_memory(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    const Tensor loss = net(batch({4, 12}, comm.rank())).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    shared.step();
    EXPECT_THROW(loss.backward(), c10::Error);
  });
}

TEST(SharedOptimizer, names_a_missing_gradient_on_every_rank) {
  const auto texts = shared_errors<CommError>(3, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    if (comm.rank() == 1) net->fc3->bias.mutable_grad().reset();
    shared.step();
  });
  expect_all_contain(texts, "there is no gradient for fc3.bias");
}

TEST(SharedOptimizer, refuses_unlike_ranks_and_bad_options_on_all_ranks) {
  const auto expect = [](const std::string& text, const std::function<SharedSgdOptions(int)>& of) {
    expect_all_contain(shared_errors<UsageError>(2,
                                                 [&](Communicator& comm) {
                                                   Mlp net;
                                                   SharedSGD shared(net, comm, of(comm.rank()));
                                                 }),
                       text);
  };
  expect("SharedSGD: the models differ: option momentum is 0 on rank 0, but 1 on rank 1",
         [](int rank) { return SharedSgdOptions{.momentum = static_cast<double>(rank)}; });
  expect("lr of group 0 is 0 on rank 0, but 1 on rank 1",
         [](int rank) { return SharedSgdOptions{.lr = static_cast<double>(rank)}; });
  expect("SharedSGD: lr is -1, not at least 0", [](int) { return SharedSgdOptions{.lr = -1}; });
  expect("momentum is -1", [](int) { return SharedSgdOptions{.momentum = -1}; });
  expect("nesterov needs", [](int) { return SharedSgdOptions{.nesterov = true}; });
  expect("group 1 names fc9.bias, which is no", [](int) {
    return SharedSgdOptions{.shared = {.groups = {{.parameters = {"fc9.bias"}}}}};
  });
  expect("group 2 names fc1.bias, which is named before", [](int) {
    return SharedSgdOptions{
        .shared = {.groups = {{.parameters = {"fc1.bias"}}, {.parameters = {"fc1.bias"}}}}};
  });
  expect_all_contain(shared_errors<UsageError>(2,
                                               [](Communicator& comm) {
                                                 Mlp net;
                                                 SharedAdam adam(net, comm, {.betas = {0.9, 1.0}});
                                               }),
                     "SharedAdam: betas are 0.9 and 1, not in [0, 1)");
  expect_all_contain(shared_errors<UsageError>(2,
                                               [](Communicator& comm) {
                                                 Mlp net;
                                                 if (comm.rank() == 1) net->to(at::kDouble);
                                                 SharedSGD shared(net, comm);
                                               }),
                     "parameter fc1.weight is f32");
}

TEST(SharedOptimizer, compares_rates_that_were_changed) {
  const auto texts = shared_errors<UsageError>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    shared.set_lr(0.1 + comm.rank());
    shared.step();
  });
  expect_all_contain(texts, "SharedSGD: the rates differ: lr of group 0 is 0.1 on rank 0");
}

TEST(SharedOptimizer, refuses_ranks_that_share_no_memory) {
  for (const auto link : {LocalLink::kMemory, LocalLink::kTcp}) {
    const auto texts = tests::errors_of<UsageError>(2,
                                                    [](Communicator& comm) {
                                                      Mlp net;
                                                      SharedSGD shared(net, comm);
                                                    },
                                                    {.link = link});
    expect_all_contain(texts, "SharedSGD: these ranks share no memory");
  }
}

struct TiedImpl : ::torch::nn::Module {
  Tensor a = register_parameter("a", ::torch::ones({40, 500}));
  Tensor b = register_parameter("b", ::torch::ones({20000}));
  Tensor c = register_parameter(
      "c", ::torch::ones({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast));
};
TORCH_MODULE(Tied);

TEST(SharedOptimizer, reads_aliased_expanded_and_strided_gradients_and_leaves_them_alone) {
  for (const int world : {1, 3}) {
    with_shared_memory(world, [world](Communicator& comm) {
      Tied net;
      SharedSGD shared(net, comm, {.lr = 1});
      for (int step = 0; step < 2; ++step) {
        shared.zero_grad();
        ((net->a.view(-1) + net->b.view(-1)).sum() * (1.0 + comm.rank())).backward();
        net->c.mutable_grad() = ::torch::full({1}, 1.0 + comm.rank()).expand({2, 3, 4, 4});
        net->a.mutable_grad() = net->b.grad().view({40, 500});  // the same memory for certain
        shared.step();
        const double mean = (world + 1) / 2.0;
        for (const auto& parameter : net->parameters()) {
          EXPECT_TRUE((parameter == 1 - mean * (step + 1)).all().item<bool>());
          EXPECT_TRUE((parameter.grad() == 1.0 + comm.rank()).all().item<bool>());
        }
      }
    });
  }
}

TEST(SharedOptimizer, refuses_parameters_that_share_memory) {
  const auto texts = shared_errors<UsageError>(2, [](Communicator& comm) {
    Tied net;
    net->b.set_data(net->a.data().view({-1}));
    SharedSGD shared(net, comm);
  });
  expect_all_contain(texts, "parameters a and b share memory");
  const auto crossing = shared_errors<UsageError>(2, [](Communicator& comm) {
    Tied net;
    const Tensor matrix = ::torch::ones({30, 30});
    net->a.set_data(matrix.select(1, 0));  // a column and a row
    net->b.set_data(matrix.select(0, 20));
    SharedSGD shared(net, comm);
  });
  expect_all_contain(crossing, "parameters a and b share memory");
}

TEST(SharedOptimizer, needs_for_all_ranks_no_more_memory_than_for_one) {
  constexpr int kWorld = 4;
  std::vector<std::size_t> state(kWorld);
  std::size_t parameters = 0;
  with_shared_memory(kWorld, [&](Communicator& comm) {
    Wide net;
    SharedAdam shared(net, comm);
    state[place_of(comm)] = shared.state_bytes();
    if (comm.rank() == 0) {
      for (const auto& parameter : net->parameters()) parameters += parameter.nbytes();
    }
    // One memory: what one rank writes, all have.
    shared.write_once([&] { net->first->weight.data().fill_(7); });
    EXPECT_TRUE((net->first->weight == 7).all().item<bool>());
  });
  std::size_t of_all = 0;
  for (const std::size_t bytes : state) {
    of_all += bytes;
    EXPECT_LE(static_cast<double>(bytes), 1.1 * 2 * static_cast<double>(parameters) / kWorld);
  }
  EXPECT_EQ(of_all, 2 * parameters);
}

TEST(SharedOptimizer, passes_on_that_a_rank_is_gone) {
  std::vector<std::string> texts(3);
  try {
    with_shared_memory(3, [&](Communicator& comm) {
      Mlp net;
      SharedSGD shared(net, comm);
      set_gradients(*net, comm.rank(), 0);
      try {  // the second step at the latest
        shared.step();
        if (comm.rank() == 2) throw std::runtime_error("rank 2 dies");
        shared.step();
      } catch (const CommError& error) {
        texts[place_of(comm)] = error.what();
      }
    });
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 2 dies");
  }
  EXPECT_NE(texts[0].find("rank 2"), std::string::npos) << texts[0];
  EXPECT_NE(texts[1].find("rank 2"), std::string::npos) << texts[1];
}

TEST(ShardLayout, gives_each_element_to_the_rank_that_reduces_it_in_the_whole_bucket) {
  const std::vector<GradientShape> shapes{
      {Dtype::kF32, 4 * 7}, {Dtype::kF32, 0}, {Dtype::kF32, 4 * 30}, {Dtype::kF32, 4 * 1}};
  const BucketLayout layout{{3, 1, 0}, {2}};
  for (const int world : {1, 2, 3, 5}) {
    const auto ranks = make_local_ranks(world);
    for (const std::uint64_t shard_bytes : {1U, 24U, 4096U}) {
      std::vector<std::vector<int>> owners{
          std::vector<int>(7, -1), {}, std::vector<int>(30, -1), std::vector<int>(1, -1)};
      for (const Round& round : make_rounds(shapes, layout, ranks.front(), shard_bytes)) {
        std::vector<std::uint64_t> shard(static_cast<std::size_t>(world));
        for (const Stretch& stretch : round.stretches) {
          auto& filled = shard[static_cast<std::size_t>(stretch.owner)];
          EXPECT_EQ(stretch.offset, filled);
          filled += stretch.elements.size();
          for (auto e = stretch.elements.begin; e < stretch.elements.end; ++e) {
            EXPECT_EQ(std::exchange(owners[stretch.parameter][e], stretch.owner), -1);
          }
        }
        for (int rank = 0; rank < world; ++rank) {
          EXPECT_EQ(shard[static_cast<std::size_t>(rank)],
                    ranks.front().shard_of(rank, round.count).size());
          EXPECT_LE(4 * shard[static_cast<std::size_t>(rank)],
                    std::max<std::uint64_t>(4, shard_bytes));
        }
      }
      for (int rank = 0; rank < world; ++rank) {
        const Range part = ranks.front().shard_of(rank, 30);
        for (auto e = part.begin; e < part.end; ++e) EXPECT_EQ(owners[2][e], rank);
      }
      EXPECT_EQ(owners[3][0], 0);  // first of its bucket
    }
  }
}

}  // namespace
}  // namespace paceline
