// SPDX-License-Identifier: Apache-2.0
// SharedAdam: how far it may be from LibTorch's Adam and AdamW.
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "shared_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::fill;
using tests::flat_gradients;
using tests::flat_parameters;
using tests::kUnit32;
using tests::Mlp;
using tests::Saved;
using tests::set_gradients;
using tests::with_shared_memory;
using ::torch::Tensor;

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
  const Tensor of_v = (dv / (2 * v1)).nan_to_num(0);  // no gradient was there yet: 0 / 0
  const Tensor dp = s * dm / d + s * m1.abs() / d * (20 * u + of_v) + 4 * u * p1.abs();
  return {1.01 * dm, 1.01 * dv, 1.01 * dp};
}

template <typename Optimizer, typename State, typename Options>
void expect_adam_within_bounds(int world, const SharedAdamOptions& o, const Options& options) {
  with_shared_memory(world, [&](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedAdam shared(net, comm, o);
    for (int step = 0; step < 6; ++step) {
      Saved before(shared);
      std::vector<Tensor> old;
      for (const auto& parameter : net->parameters()) old.push_back(parameter.detach().clone());
      comm.barrier();
      set_gradients(*net, comm.rank(), step);
      const Tensor gradients = flat_gradients(*net);
      shared.step();
      EXPECT_TRUE(::torch::equal(flat_gradients(*net), gradients)) << "it wrote to .grad";
      Saved after(shared);
      std::size_t i = 0;
      for (const auto& item : net->named_parameters()) {
        Tensor mean = batch(old[i].sizes(), 0, step) * 0.1;
        if (world == 2) mean = (mean + batch(old[i].sizes(), 1, step) * 0.1) / 2;
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
  for (const int world : {1, 2}) {
    for (const double decay : {0.0, 0.05}) {
      expect_adam_within_bounds<::torch::optim::Adam, ::torch::optim::AdamParamState>(
          world, {.lr = 0.01, .weight_decay = decay},
          ::torch::optim::AdamOptions(0.01).weight_decay(decay));
    }
    expect_adam_within_bounds<::torch::optim::AdamW, ::torch::optim::AdamWParamState>(
        world,
        {.lr = 0.01, .betas = {0.8, 0.99}, .weight_decay = 0.05, .decoupled_weight_decay = true},
        ::torch::optim::AdamWOptions(0.01).betas({0.8, 0.99}).weight_decay(0.05));
  }
}

TEST(SharedAdam, counts_steps_exactly_whatever_the_default_type) {
  std::vector<Tensor> after;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    with_shared_memory(1, [&](Communicator& comm) {
      Mlp net;
      fill(*net);
      SharedAdam adam(net, comm, {.betas = {0.9, 0.9999}});
      const auto before = ::torch::get_default_dtype();
      for (int step = 0; step < 300; ++step) {  // 257 is none of bf16's numbers
        set_gradients(*net, 0, step);
        ::torch::set_default_dtype(c10::scalarTypeToTypeMeta(type));
        adam.step();
        ::torch::set_default_dtype(before);
      }
      after.push_back(flat_parameters(*net));
    });
  }
  EXPECT_TRUE(::torch::equal(after[0], after[1]));
}

}  // namespace
}  // namespace paceline
