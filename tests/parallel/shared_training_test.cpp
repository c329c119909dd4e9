// SPDX-License-Identifier: Apache-2.0
// Shared optimizers: parameters of all types, neighbours, and what is left after them.
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "shared_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::expect_all_contain;
using tests::fill;
using tests::flat_parameters;
using tests::Mlp;
using tests::place_of;
using tests::Saved;
using tests::set_gradients;
using tests::shared_errors;
using tests::Square;
using tests::SquareImpl;
using tests::train_step;
using tests::with_shared_memory;
using ::torch::Tensor;

TEST(SharedTraining, takes_gradients_made_in_inference_mode) {
  for (const int world : {1, 2}) {
    with_shared_memory(world, [](Communicator& comm) {
      Mlp net;
      SharedSGD shared(net, comm, {.weight_decay = 0.1});
      for (const bool clipped : {true, false}) {
        {
          const c10::InferenceMode inference;
          set_gradients(*net, comm.rank(), 0);
        }
        if (clipped) shared.clip_grad_norm(1);
        EXPECT_NO_THROW(shared.step());
      }
    });
  }
}

TEST(SharedTraining, is_refused_in_inference_mode_and_of_what_was_made_in_it) {
  const auto in_mode = shared_errors<UsageError>(2, [](Communicator& comm) {
    Mlp net;
    const c10::InferenceMode inference;
    SharedSGD shared(net, comm);
  });
  expect_all_contain(in_mode, "SharedSGD: this is inference mode; leave it to train");
  const auto made_in_mode = shared_errors<UsageError>(2, [](Communicator& comm) {
    Mlp net;
    const c10::InferenceMode inference;
    net->register_parameter("extra", ::torch::ones({3}), /*requires_grad=*/false);
    const c10::InferenceMode no_more(false);
    SharedSGD shared(net, comm);
  });
  expect_all_contain(made_in_mode, "parameter extra was made in inference mode; clone it");
  const auto step = shared_errors<UsageError>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    const c10::InferenceMode inference;
    shared.step();
  });
  expect_all_contain(step, "SharedSGD: called in inference mode");
  const auto step_of_one = shared_errors<CommError>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    const c10::InferenceMode inference(comm.rank() == 1);
    shared.step();
  });
  expect_all_contain(step_of_one, "called in inference mode");
  const auto load = shared_errors<UsageError>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    Saved saved(shared);
    const c10::InferenceMode inference;
    shared.load(saved.archive);
  });
  expect_all_contain(load, "SharedSGD: called in inference mode");
}

// The module is where the optimizer of before has left it: in one memory for all ranks.
TEST(SharedTraining, can_follow_another_and_be_followed_by_ddp) {
  for (const int world : {1, 2, 3}) {
    with_shared_memory(world, [](Communicator& comm) {
      Square net;
      fill(*net, comm.rank());
      SharedSGD first(net, comm, {.lr = 0.1});
      train_step(net, first, {2, SquareImpl::kSide}, comm.rank(), 0);
      {
        SharedAdam second(net, comm, {.lr = 0.1});
        train_step(net, second, {2, SquareImpl::kSide}, comm.rank(), 1);
        EXPECT_THROW(first.step(), UsageError);
      }
      const Tensor before = flat_parameters(*net);
      DistributedDataParallel ddp(net, comm);
      EXPECT_TRUE(::torch::equal(flat_parameters(*net), before));
      net->zero_grad();
      ddp(batch({2, SquareImpl::kSide}, comm.rank())).sum().backward();
      comm.barrier();
      const ::torch::NoGradGuard no_grad;
      net->fc->weight.fill_(comm.rank());
      comm.barrier();
      EXPECT_TRUE((net->fc->weight == comm.rank()).all().item<bool>());  // each has its own again
    });
  }
}

TEST(SharedTraining, names_both_sides_of_a_gradient_unlike_its_parameter) {
  const auto texts = shared_errors<CommError>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    net->fc1->bias.mutable_grad() = ::torch::ones({2});
    shared.step();
  });
  expect_all_contain(texts, "the gradient of fc1.bias is f32 [2] on cpu, and the parameter f32 [");
}

// All types, a parameter without elements, one that is frozen, one of an odd size.
struct MixedImpl : ::torch::nn::Module {
  Tensor single = register_parameter("single", ::torch::ones({7, 3}));
  Tensor none = register_parameter("none", ::torch::ones({0, 3}));
  Tensor wide = register_parameter("wide", ::torch::ones({11}, at::kDouble));
  Tensor brain = register_parameter("brain", ::torch::ones({5, 5}, at::kBFloat16));
  Tensor frozen = register_parameter("frozen", ::torch::ones({9}, at::kLong), false);
  Tensor half = register_parameter("half", ::torch::ones({13}, at::kHalf));
  Tensor scalar = register_parameter("scalar", ::torch::ones({}));
};
TORCH_MODULE(Mixed);

template <typename Optimizer, typename Options>
void expect_mixed_types_train_alike(const Options& options) {
  std::vector<std::vector<Tensor>> ends;
  for (const int world : {1, 2, 4}) {
    with_shared_memory(world, [&](Communicator& comm) {
      Mixed net;
      Optimizer shared(net, comm, options);
      for (int step = 0; step < 3; ++step) {
        for (const auto& parameter : net->parameters()) {
          if (!parameter.requires_grad()) continue;  // the same everywhere: a mean without rounding
          parameter.mutable_grad() = batch(parameter.sizes(), 0, step).to(parameter.scalar_type());
        }
        if (step == 1) shared.clip_grad_norm(1e9);
        shared.step();
      }
      comm.barrier();
      if (comm.rank() != 0) return;
      auto& end = ends.emplace_back();
      for (const auto& parameter : net->parameters()) end.push_back(parameter.detach().clone());
    });
  }
  for (std::size_t i = 0; i < ends[0].size(); ++i) {
    for (const auto& other : ends) {
      const double tolerance =
          ends[0][i].element_size() == 2 ? 0.02 : 1e-6;  // ends round otherwise
      EXPECT_TRUE(::torch::allclose(ends[0][i], other[i], tolerance, 1e-7)) << i;
    }
    if (ends[0][i].numel() == 0 || ends[0][i].scalar_type() == at::kLong) continue;
    EXPECT_FALSE((ends[0][i] == 1).all().item<bool>()) << i;
  }
}

TEST(SharedTraining, trains_types_of_all_kinds_and_parameters_without_elements) {
  expect_mixed_types_train_alike<SharedSGD>(SharedSgdOptions{.lr = 0.1});
  expect_mixed_types_train_alike<SharedSGD>(SharedSgdOptions{.lr = 0.1, .momentum = 0.9});
  expect_mixed_types_train_alike<SharedAdam>(SharedAdamOptions{.lr = 0.1});
}

TEST(SharedTraining, trains_beside_another_and_a_ddp_on_the_same_communicator) {
  with_shared_memory(2, [](Communicator& comm) {
    const auto train_alone = [&](auto&& make) {
      Mlp net;
      fill(*net);
      auto optimizer = make(net);
      for (int step = 0; step < 3; ++step) train_step(net, *optimizer, {4, 12}, comm.rank(), step);
      comm.barrier();
      return flat_parameters(*net);
    };
    const auto sgd = [&](Mlp& net) {
      return std::make_unique<SharedSGD>(net, comm, SharedSgdOptions{.lr = 0.1});
    };
    const auto adam = [&](Mlp& net) { return std::make_unique<SharedAdam>(net, comm); };
    const Tensor by_sgd = train_alone(sgd), by_adam = train_alone(adam);
    Mlp a, b, c;
    for (auto* net : {&a, &b, &c}) fill(**net);
    auto first = sgd(a);
    auto second = adam(b);
    DistributedDataParallel ddp(c, comm);
    ::torch::optim::SGD local(ddp.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      train_step(a, *first, {4, 12}, comm.rank(), step);
      local.zero_grad();
      ddp(batch({4, 12}, comm.rank(), step)).square().mean().backward();
      train_step(b, *second, {4, 12}, comm.rank(), step);
      local.step();
    }
    comm.barrier();
    EXPECT_TRUE(::torch::equal(flat_parameters(*a), by_sgd));
    EXPECT_TRUE(::torch::equal(flat_parameters(*b), by_adam));
    EXPECT_TRUE(::torch::equal(flat_parameters(*c), by_sgd));
    comm.barrier();
  });
}

TEST(SharedTraining, leaves_parameters_usable_after_itself_and_the_communicator) {
  std::vector<Square> nets(2, nullptr);
  with_shared_memory(2, [&](Communicator& comm) {
    Square net;
    fill(*net);
    nets[place_of(comm)] = net;
    SharedAdam adam(net, comm);
    train_step(net, adam, {2, SquareImpl::kSide}, comm.rank(), 0);
  });
  EXPECT_TRUE(::torch::equal(flat_parameters(*nets[0]), flat_parameters(*nets[1])));
  // Accumulates into a block of an ended arena.
  nets[0](batch({2, SquareImpl::kSide}, 0)).sum().backward();
  {
    const ::torch::NoGradGuard no_grad;
    nets[0]->fc->weight.fill_(2);
  }
  EXPECT_TRUE((nets[1]->fc->weight == 2).all().item<bool>());  // one memory still
  nets[0]->to(at::kDouble);
  nets.clear();
}

TEST(SharedTraining, leaves_clones_of_the_module_to_each_rank) {
  with_shared_memory(2, [](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm, {.lr = 0.1});
    const auto copy = net->fc2->clone();
    {
      const ::torch::NoGradGuard no_grad;
      for (const auto& parameter : copy->parameters()) parameter.fill_(comm.rank());
    }
    comm.barrier();
    EXPECT_TRUE((copy->parameters()[0] == comm.rank()).all().item<bool>());
    EXPECT_NO_THROW(train_step(net, shared, {4, 12}, comm.rank(), 0));
  });
}

TEST(SharedTraining, goes_on_after_an_exception_in_backward_and_gradients_zeroed_in_place) {
  for (const int world : {2, 3}) {
    std::vector<Tensor> ends;
    for (const bool trouble : {false, true}) {
      with_shared_memory(world, [&](Communicator& comm) {
        Mlp net;
        fill(*net);
        SharedSGD shared(net, comm, {.lr = 0.1, .momentum = 0.9});
        if (trouble) {
          const Tensor out = net->fc2(::torch::tanh(net->fc1(batch({4, 12}, 0))));
          out.register_hook([](const Tensor&) { throw std::runtime_error("in a hook"); });
          EXPECT_ANY_THROW(net->fc3(::torch::tanh(out)).sum().backward());
        }
        for (int step = 0; step < 3; ++step) {
          if (trouble && step > 0) {
            for (const auto& parameter : net->parameters()) parameter.mutable_grad().zero_();
            net(batch({4, 12}, comm.rank(), step)).square().mean().backward();
            shared.step();
          } else {
            train_step(net, shared, {4, 12}, comm.rank(), step);
          }
        }
        comm.barrier();
        if (comm.rank() == 0) ends.push_back(flat_parameters(*net));
      });
    }
    EXPECT_TRUE(::torch::equal(ends[0], ends[1])) << world;
  }
}

}  // namespace
}  // namespace paceline
