// SPDX-License-Identifier: Apache-2.0
// Each mistake is a clear error, on every rank, and never a hang.
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp_support.h"
#include "paceline/parallel/module_tensors.h"

namespace paceline {
namespace {

using tests::batch;
using tests::errors_of;
using tests::expect_all_contain;
using tests::fill;
using tests::Mlp;
using tests::place_of;
using tests::TwoHeadsImpl;
using ::torch::Tensor;

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

struct EmptyImpl : ::torch::nn::Module {
  Tensor forward(const Tensor& x) { return x; }
};

TEST(Ddp, refuses_a_module_without_any_parameter) {
  const auto texts = errors_of<UsageError>(2, [](Communicator& comm) {
    DistributedDataParallel ddp(std::make_shared<EmptyImpl>(), comm);
  });
  expect_all_contain(texts, "no parameter that requires grad");
}

TEST(Ddp, turns_an_empty_module_into_an_error_of_all) {
  for (const int world : {1, 3}) {
    const auto all = errors_of<UsageError>(world, [](Communicator& comm) {
      DistributedDataParallel ddp(std::shared_ptr<Plain>(), comm);
    });
    expect_all_contain(all, "the module is empty");
  }
  const auto one = errors_of<UsageError>(3, [](Communicator& comm) {
    auto net = comm.rank() == 1 ? nullptr : std::make_shared<Plain>();
    DistributedDataParallel ddp(net, comm);
  });
  expect_all_contain(one, "the module is given on rank 0, but empty on rank 1");
  const auto holder = errors_of<UsageError>(2, [](Communicator& comm) {
    Mlp net(nullptr);
    if (comm.rank() == 0) net = Mlp();
    DistributedDataParallel ddp(net, comm);
  });
  expect_all_contain(holder, "the module is given on rank 0, but empty on rank 1");
}

TEST(Ddp, turns_a_timeout_of_0_on_one_rank_into_an_error_of_all) {
  const auto texts = errors_of<UsageError>(2, [](Communicator& comm) {
    DistributedDataParallel ddp(std::make_shared<Plain>(), comm,
                                {.timeout = std::chrono::minutes(comm.rank() == 0 ? 1 : 0)});
  });
  expect_all_contain(texts, "the timeout is not positive");
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

TEST(Ddp, goes_on_after_a_backward_that_died_where_there_is_only_one_rank) {
  spawn_ranks(1, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    const auto x = batch({4, 12}, 0);
    bool broken = true;
    net->fc1->weight.register_hook([&](const Tensor&) {
      if (broken) throw std::runtime_error("a user's bug");
    });
    EXPECT_THROW(ddp(x).sum().backward(), std::runtime_error);
    broken = false;
    net->zero_grad();
    ddp(x).sum().backward();
    EXPECT_EQ(ddp.statistics().steps, 1U);
  });
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
    const auto texts = errors_of<UsageError>(1, [&spoil = change](Communicator& comm) {
      auto net = std::make_shared<Net>();
      DistributedDataParallel ddp(net, comm);
      spoil(*net);
      (void)ddp(batch({2, 3}, 0));
    });
    expect_all_contain(texts, part);
  }
}

TEST(Ddp, notices_buffers_that_cannot_be_sent_any_more) {
  const auto spoil = [](Plain& net) {
    net.register_buffer("late", ::torch::zeros({1}, ::torch::kMeta));
  };
  const auto all = errors_of<UsageError>(2, [&](Communicator& comm) {
    auto net = std::make_shared<Plain>();
    DistributedDataParallel ddp(net, comm);
    spoil(*net);
    EXPECT_THROW((void)ddp(batch({2, 3}, 0)), UsageError);
    comm.barrier();  // all ranks saw the same: nothing has happened
    (void)ddp(batch({2, 3}, 0));
  });
  expect_all_contain(all, "buffer late is on meta");
  const auto one = errors_of<CommError>(2, [&](Communicator& comm) {
    auto net = std::make_shared<Plain>();
    net->register_buffer("steady", ::torch::zeros({2}));
    DistributedDataParallel ddp(net, comm);
    if (comm.rank() == 1) spoil(*net);
    ddp(batch({2, 3}, 0)).sum().backward();
  });
  expect_all_contain(one, "buffer late is on meta");
}

TEST(Ddp, tells_all_ranks_of_parameters_that_changed_on_one) {
  const auto texts = errors_of<CommError>(2, [](Communicator& comm) {
    auto net = std::make_shared<Plain>();
    DistributedDataParallel ddp(net, comm);
    if (comm.rank() == 1) net->fc->bias.requires_grad_(false);
    ddp(batch({2, 3}, 0)).sum().backward();
  });
  expect_all_contain(texts, "fc.bias no longer requires grad");
}

TEST(Ddp, names_a_sparse_gradient) {
  const auto texts = errors_of<CommError>(2, [](Communicator& comm) {
    ::torch::nn::Embedding net(::torch::nn::EmbeddingOptions(5, 3).sparse(true));
    DistributedDataParallel ddp(net, comm);
    ddp(::torch::tensor({1, 2})).sum().backward();
  });
  expect_all_contain(texts, "the gradient of weight is sparse");
  expect_all_contain(texts, "sparse(false)");
}

TEST(Ddp, names_both_sides_of_a_gradient_unlike_its_parameter) {
  const auto texts = errors_of<CommError>(2, [](Communicator& comm) {
    auto net = std::make_shared<TwoHeadsImpl>();
    DistributedDataParallel ddp(net, comm);
    ddp.expect_backwards(2);
    ddp(batch({2, 4}, 0), true).sum().backward();
    net->left->bias.mutable_grad() = ::torch::ones({2}, ::torch::kDouble);
    ddp(batch({2, 4}, 0), false).sum().backward();
  });
  expect_all_contain(texts,
                     "the gradient of left.bias is f64 [2] on cpu, and the parameter f32 [1]");
}

TEST(FaultOfGradient, shows_both_sides_or_the_layout) {
  const auto fault = [](const Tensor& gradient) {
    const Tensor parameter = ::torch::ones({2, 3}).requires_grad_();
    parameter.mutable_grad() = gradient;
    return fault_of_gradient({"fc.weight", parameter});
  };
  const auto unlike = [](const std::string& kind) {
    return "the gradient of fc.weight is " + kind +
           ", and the parameter f32 [2, 3] on cpu; they must be alike";
  };
  EXPECT_EQ(fault(::torch::ones({2, 3})), "");
  EXPECT_EQ(fault(::torch::ones({2, 3}, ::torch::kDouble)), unlike("f64 [2, 3] on cpu"));
  EXPECT_EQ(fault(::torch::ones({6})), unlike("f32 [6] on cpu"));
  EXPECT_EQ(fault(::torch::ones({2, 3}, ::torch::kMeta)), unlike("f32 [2, 3] on meta"));
  EXPECT_EQ(fault(::torch::ones({2, 3}).to_sparse()),
            "the gradient of fc.weight is sparse or in another special layout; only dense ones can "
            "be averaged (of an embedding, with sparse(false))");
}

}  // namespace
}  // namespace paceline
