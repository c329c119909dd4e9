// SPDX-License-Identifier: Apache-2.0
// Several wrappers on one communicator are kept apart.
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::errors_of;
using tests::expect_all_contain;
using tests::Mlp;

TEST(DdpWrappers, count_their_own_traffic_on_a_communicator_that_they_share) {
  spawn_ranks(2, [](Communicator& comm) {
    Mlp a, b;
    std::vector<DdpStatistics> all;
    const auto train = [&](auto& ddp, int steps) {
      for (int i = 0; i < steps; ++i) {
        ddp(batch({4, 12}, comm.rank())).square().mean().backward();
      }
      all.push_back(ddp.statistics());
    };
    {
      DistributedDataParallel first(a, comm), second(b, comm);
      train(first, 2);
      train(second, 1);
      EXPECT_NE(first.buckets().front().label, second.buckets().front().label);
    }
    DistributedDataParallel again(a, comm);
    train(again, 1);
    for (const DdpStatistics& statistics : all) {
      EXPECT_GT(statistics.bytes_sent, 0U);
      EXPECT_EQ(statistics.bytes_sent, statistics.formula_bytes_sent);
    }
    EXPECT_EQ(all[0].bytes_sent, 2 * all[1].bytes_sent);
    EXPECT_EQ(all[1].bytes_sent, all[2].bytes_sent);
  });
}

TEST(DdpWrappers, whose_backwards_cross_are_an_error_on_every_rank) {
  const auto texts = errors_of<CommError>(2, [](Communicator& comm) {
    Mlp a, b;
    DistributedDataParallel first(a, comm), second(b, comm);
    const auto x = batch({4, 12}, comm.rank());
    const auto one = first(x).square().mean(), two = second(x).square().mean();
    (comm.rank() == 0 ? one : two).backward();
    (comm.rank() == 0 ? two : one).backward();
    ADD_FAILURE() << "gradients of two models were averaged";
  });
  expect_all_contain(texts, "ddp 0 bucket 0");
  expect_all_contain(texts, "ddp 1 bucket 0");
}

TEST(DdpWrappers, that_are_not_the_same_on_all_ranks_are_an_error_on_every_rank) {
  const auto texts = errors_of<UsageError>(2, [](Communicator& comm) {
    if (comm.rank() == 1) (void)comm.next_user_number();
    Mlp net;
    DistributedDataParallel ddp(net, comm);
  });
  expect_all_contain(texts, "the wrapper's name is ddp 0 on rank 0, but ddp 1 on rank 1");
}

// Rank 0 leaves a step with its only bucket in flight, which rank 1 does not join.
void leave_in_the_middle(Communicator& comm, std::latch& left) {
  Mlp net;
  auto ddp = std::make_unique<DistributedDataParallel<tests::MlpImpl>>(
      net, comm, DdpOptions{.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1});
  const auto loss = (*ddp)(batch({4, 12}, comm.rank())).square().mean();
  if (comm.rank() == 1) {
    left.wait();
    loss.backward();
    return;
  }
  net->fc1->weight.register_hook(
      [](const ::torch::Tensor&) { throw std::runtime_error("a user's bug"); });
  EXPECT_THROW(loss.backward(), std::runtime_error);
  EXPECT_GT(ddp->statistics().buckets_started, 0U);
  Communicator moved = std::move(comm);
  ddp.reset();  // must not wait for rank 1, nor need `comm`
  left.count_down();
  comm = std::move(moved);
}

TEST(DdpWrappers, that_end_in_the_middle_of_a_step_neither_wait_nor_leave_others_waiting) {
  std::latch left(1);
  const auto texts = errors_of<CommError>(2, [&](Communicator& comm) {
    leave_in_the_middle(comm, left);
    comm.barrier();
  });
  expect_all_contain(texts, "destroyed in the middle of a step");
}

TEST(DdpWrappers, take_a_timeout) {
  std::latch done(1);
  const auto texts = errors_of<CommError>(2, [&](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm, {.timeout = std::chrono::milliseconds(300)});
    const auto loss = ddp(batch({4, 12}, comm.rank())).square().mean();
    if (comm.rank() == 1) return done.wait();
    try {
      loss.backward();
    } catch (const CommError& error) {
      EXPECT_EQ(error.code(), CommErrc::kTimeout);
      done.count_down();
      throw;
    }
  });
  EXPECT_NE(texts[0].find("stood still for 0.3 s"), std::string::npos) << texts[0];
}

}  // namespace
}  // namespace paceline
