// SPDX-License-Identifier: Apache-2.0
// Several wrappers on one communicator are kept apart.
#include <string>
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

}  // namespace
}  // namespace paceline
