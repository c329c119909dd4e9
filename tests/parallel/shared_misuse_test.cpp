// SPDX-License-Identifier: Apache-2.0
// Shared optimizers: what users do wrong.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "shared_support.h"

namespace paceline {
namespace {

using tests::expect_all_contain;
using tests::fill;
using tests::flat_parameters;
using tests::Mlp;
using tests::place_of;
using tests::set_gradients;
using tests::shared_errors;
using tests::Square;
using tests::with_shared_memory;
using ::torch::Tensor;

TEST(SharedMisuse, of_a_module_that_changed_is_refused_by_clip_grad_norm_too) {
  const auto refused = [](const std::function<void(Mlp&)>& change) {
    return shared_errors<UsageError>(2, [&](Communicator& comm) {
      Mlp net;
      SharedSGD shared(net, comm);
      change(net);
      set_gradients(*net, comm.rank(), 0);
      shared.clip_grad_norm(1);
    });
  };
  expect_all_contain(refused([](Mlp& net) { net->to(at::kHalf); }),
                     "fc1.weight has another type or shape");
  expect_all_contain(refused([](Mlp& net) { net->fc1->weight.set_requires_grad(false); }),
                     "fc1.weight no longer requires grad");
  expect_all_contain(refused([](Mlp& net) {
                       const ::torch::NoGradGuard no_grad;
                       net->fc1->bias.mul_(1);
                     }),
                     "changed outside of step(): fc1.bias");
}

TEST(SharedMisuse, of_a_module_that_moved_froze_or_thawed_is_refused_by_step) {
  const auto refused = [](const std::function<void(Mlp&)>& change) {
    return shared_errors<UsageError>(2, [&](Communicator& comm) {
      Mlp net;
      net->fc3->bias.set_requires_grad(false);
      SharedSGD shared(net, comm);
      net->to(at::kFloat);  // changes nothing
      set_gradients(*net, comm.rank(), 0);
      EXPECT_NO_THROW(shared.step());
      change(net);
      set_gradients(*net, comm.rank(), 0);
      shared.step();
    });
  };
  expect_all_contain(refused([](Mlp& net) { net->to(at::kDouble); }), "another type or shape");
  expect_all_contain(refused([](Mlp& net) {
                       net->to(at::kDouble);
                       net->to(at::kFloat);
                     }),
                     "changed outside of step(): fc1.weight");
  expect_all_contain(refused([](Mlp& net) { net->fc3->bias.set_requires_grad(true); }),
                     "fc3.bias now requires grad");
  expect_all_contain(refused([](Mlp& net) {
                       net->fc2->weight.set_data(net->fc2->weight.data().t());  // the same memory
                     }),
                     "changed outside of step(): fc2.weight");
  expect_all_contain(refused([](Mlp& net) { ::torch::optim::SGD(net->parameters(), 0.1).step(); }),
                     "changed outside of step()");
}

TEST(SharedMisuse, of_clip_grad_norm_with_unlike_limits_is_refused_on_all_ranks) {
  const auto texts = shared_errors<UsageError>(3, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    shared.clip_grad_norm(comm.rank() == 2 ? 0.5 : 0.25);
  });
  expect_all_contain(texts, "SharedSGD: max_norm is 0.25 on rank 0, but 0.5 on rank 2");
}

TEST(SharedMisuse, of_rates_is_refused_until_they_are_alike) {
  const auto texts = shared_errors<UsageError>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    shared.set_lr(0.1 + comm.rank());
    EXPECT_THROW(shared.step(), UsageError);
    shared.step();
  });
  expect_all_contain(texts, "SharedSGD: the rates differ: lr of group 0 is 0.1 on rank 0");
}

TEST(SharedMisuse, of_numbers_that_are_not_finite_is_refused) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto sgd = [](const SharedSgdOptions& options) {
    return shared_errors<UsageError>(2, [&](Communicator& comm) {
      Mlp net;
      SharedSGD shared(net, comm, options);
    });
  };
  expect_all_contain(sgd({.lr = inf}), "lr is inf, not finite");
  expect_all_contain(sgd({.momentum = nan}), "momentum is nan, not finite");
  expect_all_contain(sgd({.momentum = 0.9, .dampening = nan}), "dampening is nan, not finite");
  expect_all_contain(sgd({.weight_decay = nan}), "weight_decay is nan, not finite");
  const auto adam = shared_errors<UsageError>(2, [&](Communicator& comm) {
    Mlp net;
    SharedAdam shared(net, comm, {.eps = inf});
  });
  expect_all_contain(adam, "eps is inf, not finite");
  with_shared_memory(1, [&](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    EXPECT_THROW(shared.set_lr(nan), UsageError);
    EXPECT_THROW(shared.set_lr(inf), UsageError);
    EXPECT_THROW(shared.set_weight_decay(0, nan), UsageError);
    EXPECT_THROW(static_cast<void>(shared.lr(1)), UsageError);
    set_gradients(*net, 0, 0);
    EXPECT_THROW(static_cast<void>(shared.clip_grad_norm(nan)), UsageError);
    EXPECT_EQ(shared.lr(), 1e-3);
    shared.set_lr(1e30);  // large, but a number
    EXPECT_NO_THROW(shared.step());
  });
}

// Whether step() is refused in a child of this process, as its code says.
bool child_is_refused(SharedOptimizer& shared) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = false;
    try {
      shared.step();
    } catch (const UsageError& error) {
      good = std::string(error.what()).find("was forked") != std::string::npos;
    }
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status == 0;
}

TEST(SharedMisuse, in_a_forked_child_is_refused_and_leaves_the_parent_alone) {
  for (const int world : {1, 2}) {
    with_shared_memory(world, [](Communicator& comm) {
      Mlp net;
      fill(*net);
      SharedSGD shared(net, comm, {.lr = 0.5});
      const Tensor before = flat_parameters(*net);
      set_gradients(*net, comm.rank(), 0);
      comm.barrier();
      if (comm.rank() == 0) {
        EXPECT_TRUE(child_is_refused(shared));
      }
      comm.barrier();
      EXPECT_TRUE(::torch::equal(flat_parameters(*net), before));
      comm.barrier();
      EXPECT_NO_THROW(shared.step());
    });
  }
}

struct BuffersOnlyImpl : ::torch::nn::Module {
  Tensor mean = register_buffer("mean", ::torch::zeros({3}));
};
TORCH_MODULE(BuffersOnly);

TEST(SharedMisuse, with_nothing_to_train_is_refused) {
  expect_all_contain(shared_errors<UsageError>(2,
                                               [](Communicator& comm) {
                                                 BuffersOnly net;
                                                 SharedAdam adam(net, comm);
                                               }),
                     "has no parameter that requires grad");
  expect_all_contain(shared_errors<UsageError>(2,
                                               [](Communicator& comm) {
                                                 Mlp net = nullptr;
                                                 SharedAdam adam(net, comm);
                                               }),
                     "SharedAdam: the module is empty");
}

TEST(SharedMisuse, of_gradients_that_another_call_still_uses_is_told_on_all_ranks) {
  const auto texts = shared_errors<std::exception>(2, [](Communicator& comm) {
    Square net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    Tensor other = net->fc->weight.grad().clone();
    const Tensor& used = comm.rank() == 0 ? net->fc->weight.grad() : other;
    const Piece piece{static_cast<std::byte*>(used.mutable_data_ptr()), used.nbytes()};
    const Buffer buffer{Dtype::kF32, static_cast<std::uint64_t>(used.numel()), {&piece, 1}};
    const Work in_flight = comm.engine().start({.what = Collective::kAllReduce,
                                                .count = buffer.count,
                                                .label = "mine",
                                                .progress = Progress::kCaller},
                                               buffer, buffer);
    shared.step();
  });
  for (const auto& text : texts) {
    EXPECT_NE(text.find("rank 0 refused"), std::string::npos) << text;
    EXPECT_NE(text.find("still in flight"), std::string::npos) << text;
  }
}

// Rounds of the first parameter are under way when one of the second is refused.
TEST(SharedMisuse, ends_its_rounds_before_it_tells_of_one_that_was_refused) {
  std::vector<std::string> texts(2);
  with_shared_memory(2, [&](Communicator& comm) {
    ::torch::nn::ParameterList net;
    for (int i = 0; i < 2; ++i) net->append(::torch::zeros({1024, 1024}).requires_grad_());
    SharedSGD shared(net, comm, {.lr = 1});
    const std::vector<Tensor> parameters = net->parameters();
    for (const Tensor& one : parameters) one.mutable_grad() = ::torch::ones_like(one);
    const Region foreign = comm.share(parameters[1].nbytes());  // rank 0's
    if (comm.rank() == 1) {
      parameters[1].mutable_grad() = ::torch::from_blob(foreign.data.get(), {1024, 1024});
    }
    try {
      shared.step();
    } catch (const std::exception& error) {
      texts[place_of(comm)] = error.what();
    }
    try {
      shared.step();
      ADD_FAILURE() << "it stepped on a closed communicator";
    } catch (const std::exception& error) {  // of what has failed, not of parameters that changed
      EXPECT_EQ(std::string(error.what()).find("outside of step()"), std::string::npos)
          << error.what();
    }
    if (comm.rank() == 0) return;
    const Tensor share = parameters[0].detach().view(-1).slice(0, 512 * 1024);
    EXPECT_TRUE((share == -1).all().item<bool>());
    EXPECT_TRUE((parameters[1] == 0).all().item<bool>());
  });
  expect_all_contain(texts, "its memory belongs to rank 0");
}

TEST(SharedMisuse, of_rates_on_one_rank_alone_names_the_rates) {
  const auto texts = shared_errors<CommError>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    if (comm.rank() == 1) shared.set_lr(0.5);
    shared.step();
  });
  expect_all_contain(texts, "SharedSGD: the rates");
}

TEST(SharedMisuse, does_not_notice_what_goes_around_autograd_and_leaves_the_sampled_bytes) {
  with_shared_memory(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm, {.lr = 0.5});
    for (const auto& parameter : net->parameters()) {
      parameter.mutable_grad() = ::torch::zeros_like(parameter);
    }
    if (comm.rank() == 0) net->fc1->weight.data().view(-1)[5] = 9;
    shared.step();
    EXPECT_EQ(net->fc1->weight.view(-1)[5].item<float>(), 9);  // on all ranks: it is one memory
  });
}

}  // namespace
}  // namespace paceline
