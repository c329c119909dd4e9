// SPDX-License-Identifier: Apache-2.0
// Shared optimizers: the norm they clip by, whose memory they use, and what they refuse.
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "shared_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::expect_all_contain;
using tests::fill;
using tests::flat_gradients;
using tests::flat_parameters;
using tests::Mlp;
using tests::place_of;
using tests::set_gradients;
using tests::shared_errors;
using tests::Wide;
using tests::with_shared_memory;
using ::torch::Tensor;

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

}  // namespace
}  // namespace paceline
