// SPDX-License-Identifier: Apache-2.0
// Shared optimizers: what users do wrong, or seldom.
#include <chrono>
#include <cmath>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "shared_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::Cnn;
using tests::expect_all_contain;
using tests::fill;
using tests::flat_parameters;
using tests::Mlp;
using tests::place_of;
using tests::set_gradients;
using tests::shared_errors;
using tests::with_shared_memory;
using ::torch::Tensor;

constexpr std::int64_t kSide = 160;  // [kSide, kSide] floats take a block
constexpr std::size_t kBlock = kSide * kSide * sizeof(float);

// The user's allocator, from before the program: on a thread that asks for it, it has no memory for
// `refused_from` bytes and more; and it counts requests of a block's size.
thread_local std::size_t refused_from = std::numeric_limits<std::size_t>::max();
thread_local int block_requests = 0;

struct PoorAllocator final : c10::Allocator {
  c10::Allocator& before = *c10::GetCPUAllocator();
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes >= refused_from) throw std::bad_alloc();
    if (bytes == kBlock) ++block_requests;
    return before.allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return before.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

[[maybe_unused]] const bool installed = [] {
  c10::SetCPUAllocator(new PoorAllocator, 0);
  return true;
}();

struct SquareImpl : ::torch::nn::Module {
  ::torch::nn::Linear fc = register_module(
      "fc", ::torch::nn::Linear(::torch::nn::LinearOptions(kSide, kSide).bias(false)));
  Tensor forward(const Tensor& x) { return fc(x); }
};
TORCH_MODULE(Square);

template <typename Net>
void train_step(Net& net, SharedOptimizer& optimizer, ::torch::IntArrayRef sizes, int rank, int k) {
  optimizer.zero_grad();
  net(batch(sizes, rank, k)).square().mean().backward();
  optimizer.step();
}

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
  expect_all_contain(texts, "the rates differ");
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

TEST(SharedMisuse, in_a_forked_child_is_refused_and_leaves_the_parent_alone) {
  with_shared_memory(2, [](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm, {.lr = 0.5});
    const Tensor before = flat_parameters(*net);
    set_gradients(*net, comm.rank(), 0);
    comm.barrier();
    if (comm.rank() == 0) {
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
      EXPECT_EQ(status, 0);
    }
    comm.barrier();
    EXPECT_TRUE(::torch::equal(flat_parameters(*net), before));
    comm.barrier();
    EXPECT_NO_THROW(shared.step());
  });
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

TEST(SharedOptimizer, updates_nothing_after_clipping_before_all_ranks_step) {
  const auto texts = shared_errors<std::exception>(2, [](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm, {.lr = 1});
    const Tensor before = flat_parameters(*net);
    set_gradients(*net, comm.rank(), 0);
    shared.clip_grad_norm(1);
    if (comm.rank() == 1) {
      comm.abort("rank 1 gives up");
      throw std::runtime_error("rank 1 gives up");
    }
    try {
      shared.step();
    } catch (const CommError&) {
      EXPECT_TRUE(::torch::equal(flat_parameters(*net), before));
      throw;
    }
  });
  expect_all_contain(texts, "rank 1 gives up");
}

TEST(SharedOptimizer, tells_all_ranks_if_one_has_no_memory) {
  const auto texts = shared_errors<std::exception>(3, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm, {.shared = {.timeout = std::chrono::seconds(5)}});
    set_gradients(*net, comm.rank(), 0);
    if (comm.rank() == 1) refused_from = 512;
    try {
      shared.clip_grad_norm(1);
    } catch (...) {
      refused_from = std::numeric_limits<std::size_t>::max();
      throw;
    }
  });
  EXPECT_EQ(texts[1], "std::bad_alloc");  // with its type
  EXPECT_NE(texts[0].find("rank 1: SharedSGD: std::bad_alloc"), std::string::npos) << texts[0];
  EXPECT_NE(texts[2].find("rank 1: SharedSGD: std::bad_alloc"), std::string::npos) << texts[2];
}

TEST(SharedOptimizer, tells_all_ranks_if_one_has_no_memory_at_construction) {
  const auto texts = shared_errors<std::exception>(2, [](Communicator& comm) {
    Square net;
    if (comm.rank() == 1) refused_from = kBlock / 4;  // of its half of the state
    try {
      SharedAdam shared(net, comm);
      set_gradients(*net, comm.rank(), 0);
      shared.step();
    } catch (...) {
      refused_from = std::numeric_limits<std::size_t>::max();
      throw;
    }
  });
  EXPECT_EQ(texts[1], "std::bad_alloc");
  EXPECT_NE(texts[0].find("rank 1: SharedAdam: std::bad_alloc"), std::string::npos) << texts[0];
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

TEST(SharedOptimizer, keeps_gradients_in_place_after_what_went_wrong_without_harm) {
  with_shared_memory(2, [](Communicator& comm) {
    Square net;
    fill(*net);
    SharedSGD shared(net, comm, {.lr = 0.1});
    const auto in_place = [&] {
      train_step(net, shared, {2, kSide}, comm.rank(), 0);
      return shared.gradient_bytes().in_place;
    };
    ASSERT_EQ(in_place(), kBlock);
    EXPECT_ANY_THROW(shared.write_once([] { throw std::runtime_error("no such file"); }));
    EXPECT_EQ(in_place(), kBlock);
    shared.clip_grad_norm(1);  // a step that is skipped, since the norm is too large, say
    EXPECT_EQ(in_place(), kBlock);
    shared.set_lr(0.1 + comm.rank());
    EXPECT_THROW(shared.step(), UsageError);
    shared.set_lr(0.1);
    EXPECT_EQ(in_place(), kBlock);
  });
}

TEST(SharedOptimizer, takes_no_blocks_of_gradients_to_save_and_load) {
  with_shared_memory(2, [](Communicator& comm) {
    Square net;
    SharedAdam shared(net, comm);
    ::torch::serialize::OutputArchive out;
    block_requests = 0;
    shared.save(out);
    EXPECT_EQ(block_requests, 2);  // both states
  });
}

TEST(SharedOptimizer, waits_for_the_function_of_write_once_up_to_its_timeout) {
  std::latch given_up(1);
  const auto texts = shared_errors<CommError>(2, [&](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm, {.shared = {.timeout = std::chrono::seconds(2)}});
    try {
      shared.write_once([&] { given_up.wait(); });
    } catch (...) {
      if (comm.rank() == 1) given_up.count_down();
      throw;
    }
  });
  EXPECT_NE(texts[1].find("stood still for 2"), std::string::npos) << texts[1];
  EXPECT_NE(texts[1].find("write_once"), std::string::npos) << texts[1];
  EXPECT_FALSE(texts[0].empty());
}

TEST(SharedOptimizer, does_not_notice_what_goes_around_autograd_and_leaves_the_sampled_bytes) {
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

TEST(SharedOptimizer, sends_rank_0_s_buffers_also_after_write_once_has_failed) {
  with_shared_memory(2, [](Communicator& comm) {
    Cnn net;
    SharedSGD shared(net, comm);
    EXPECT_ANY_THROW(shared.write_once([&] {
      net->bn1->running_mean.fill_(5);
      throw std::runtime_error("half way");
    }));
    EXPECT_TRUE((net->bn1->running_mean == 5).all().item<bool>());
  });
}

TEST(SharedOptimizer, takes_gradients_made_in_inference_mode) {
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

TEST(SharedOptimizer, trains_types_of_all_kinds_and_parameters_without_elements) {
  expect_mixed_types_train_alike<SharedSGD>(SharedSgdOptions{.lr = 0.1, .momentum = 0.9});
  expect_mixed_types_train_alike<SharedAdam>(SharedAdamOptions{.lr = 0.1});
}

TEST(SharedOptimizer, trains_beside_another_and_a_ddp_on_the_same_communicator) {
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

TEST(SharedOptimizer, leaves_parameters_usable_after_itself_and_the_communicator) {
  std::vector<Square> nets(2, nullptr);
  with_shared_memory(2, [&](Communicator& comm) {
    Square net;
    fill(*net);
    nets[place_of(comm)] = net;
    SharedAdam adam(net, comm);
    train_step(net, adam, {2, kSide}, comm.rank(), 0);
  });
  EXPECT_TRUE(::torch::equal(flat_parameters(*nets[0]), flat_parameters(*nets[1])));
  nets[0](batch({2, kSide}, 0)).sum().backward();  // accumulates into a block of an ended arena
  {
    const ::torch::NoGradGuard no_grad;
    nets[0]->fc->weight.fill_(2);
  }
  EXPECT_TRUE((nets[1]->fc->weight == 2).all().item<bool>());  // one memory still
  nets[0]->to(at::kDouble);
  nets.clear();
}

TEST(SharedOptimizer, leaves_clones_of_the_module_to_each_rank) {
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

TEST(SharedOptimizer, goes_on_after_an_exception_in_backward_and_gradients_zeroed_in_place) {
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
