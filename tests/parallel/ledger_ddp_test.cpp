// SPDX-License-Identifier: Apache-2.0
// What the ledgers of a rank say of DDP steps of real models, beside formula and simulator.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp_support.h"
#include "paceline/plan/cost.h"
#include "paceline/sim/count.h"

namespace paceline {
namespace {

using tests::batch;
using tests::Cnn;
using tests::fill;
using tests::Mlp;
using tests::place_of;
using tests::TwoHeadsImpl;

constexpr std::size_t kSmall = 256;  // bytes of a bucket: several in a small model

struct CnnRun {
  using Net = Cnn;
  static ::torch::Tensor input(int rank, int step) { return batch({4, 1, 8, 8}, rank, step); }
};
struct MlpRun {
  using Net = Mlp;
  static ::torch::Tensor input(int rank, int step) { return batch({4, 12}, rank, step); }
};

/// What one rank's ledgers hold after some steps.
struct Books {
  Ledger comm;
  Ledger ddp;
  std::vector<std::vector<BucketInfo>> buckets;  // [step]: as they were laid out in it
  std::uint64_t model_bytes = 0;
};

template <typename Run>
std::vector<Books> train(int world, std::size_t steps) {
  std::vector<Books> of_rank(static_cast<std::size_t>(world));
  const auto body = [&](Communicator& comm) {
    Books& books = of_rank[place_of(comm)];
    typename Run::Net net;
    fill(*net);
    for (const auto& parameter : net->parameters()) books.model_bytes += parameter.nbytes();
    DistributedDataParallel ddp(net, comm,
                                {.bucket_cap_bytes = kSmall, .first_bucket_cap_bytes = kSmall / 2});
    ::torch::optim::SGD optimizer(ddp.parameters(), 0.01);
    comm.start_ledger();
    ddp.start_ledger();
    for (std::size_t step = 0; step < steps; ++step) {
      books.buckets.push_back(ddp.buckets());
      optimizer.zero_grad();
      ddp(Run::input(comm.rank(), static_cast<int>(step))).square().mean().backward();
      optimizer.step();
    }
    books.comm = comm.take_ledger();
    books.ddp = ddp.take_ledger();
  };
  spawn_ranks(world, body, {.algorithm = Algorithm::kRing});
  return of_rank;
}

/// The calls of one step's buckets, in the order of the buckets: the next `buckets.size()` calls
/// from `at` on that carry their labels.
std::vector<CallRecord> calls_of(const std::vector<BucketInfo>& buckets,
                                 const Ledger& ledger,
                                 std::size_t& at) {
  std::vector<CallRecord> calls;
  for (const BucketInfo& bucket : buckets) {
    while (ledger.calls.at(at).label != bucket.label) ++at;
    calls.push_back(ledger.calls[at++]);
  }
  return calls;
}

struct Load {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Load&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Load& load) {
  return out << load.messages << " messages, " << load.bytes << " bytes";
}
using Links = std::map<std::pair<int, int>, Load>;  // (from, to)

/// What one call moved, as its senders and as its receivers saw it, and what each rank sent.
struct Moved {
  Links sent;
  Links received;
  std::vector<std::uint64_t> by_rank;
};

void add(const CallRecord& call, int rank, Moved& moved) {
  moved.by_rank.push_back(0);
  for (const auto& [peer, traffic] : call.peers) {
    moved.by_rank.back() += traffic.payload_bytes_sent;
    if (traffic.messages_sent != 0) {
      moved.sent[{rank, peer}] = {traffic.messages_sent, traffic.payload_bytes_sent};
    }
    if (traffic.messages_received != 0) {
      moved.received[{peer, rank}] = {traffic.messages_received, traffic.payload_bytes_received};
    }
  }
}

Links simulated(const BucketInfo& bucket, int world) {
  Links links;
  for (const sim::LinkTraffic& link :
       sim::count(bucket.algorithm, {.world = world, .count = bucket.count}, bucket.dtype)) {
    links[{link.from, link.to}] = {link.messages, link.bytes};
  }
  return links;
}

std::uint64_t formula(const BucketInfo& bucket, int rank, int world) {
  return plan::formula_bytes_sent(
      bucket.algorithm, {.rank = rank, .world = world, .count = bucket.count}, bucket.dtype);
}

/// Holds what a bucket moved against formula and simulator; returns the bytes on all edges.
std::uint64_t expect_agreement(const Moved& moved, const BucketInfo& bucket, int world) {
  EXPECT_EQ(moved.sent, simulated(bucket, world));
  EXPECT_EQ(moved.received, simulated(bucket, world));
  for (int rank = 0; rank < world; ++rank) {
    EXPECT_EQ(moved.by_rank.at(static_cast<std::size_t>(rank)), formula(bucket, rank, world));
  }
  std::uint64_t bytes = 0;
  for (const auto& [link, load] : moved.sent) {
    EXPECT_EQ(link.second, (link.first + 1) % world) << "not an edge of the ring";
    bytes += load.bytes;
  }
  return bytes;
}

template <typename Run>
class LedgerOfSteps : public ::testing::Test {};
using Runs = ::testing::Types<CnnRun, MlpRun>;
TYPED_TEST_SUITE(LedgerOfSteps, Runs);

TYPED_TEST(LedgerOfSteps, agrees_with_formula_and_simulator_for_every_bucket) {
  constexpr std::size_t kSteps = 3;
  for (int world = 2; world <= 8 && !this->HasFailure(); ++world) {
    const std::vector<Books> of_rank = train<TypeParam>(world, kSteps);
    std::vector<std::size_t> at(of_rank.size(), 0);
    for (std::size_t step = 0; step < kSteps; ++step) {
      const std::vector<BucketInfo>& buckets = of_rank[0].buckets[step];
      ASSERT_GE(buckets.size(), 3U);
      std::vector<Moved> moved(buckets.size());
      for (std::size_t r = 0; r < of_rank.size(); ++r) {
        const auto calls = calls_of(buckets, of_rank[r].comm, at[r]);
        for (std::size_t b = 0; b < calls.size(); ++b) {
          EXPECT_EQ(calls[b].count, buckets[b].count);
          add(calls[b], static_cast<int>(r), moved[b]);
        }
      }
      std::uint64_t bytes = 0;
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        SCOPED_TRACE(buckets[b].label + " over " + std::to_string(world));
        bytes += expect_agreement(moved[b], buckets[b], world);
      }
      EXPECT_EQ(bytes, 2 * static_cast<std::uint64_t>(world - 1) * of_rank[0].model_bytes);
    }
  }
}

TYPED_TEST(LedgerOfSteps, has_forward_backward_and_wait_of_each_step_in_order) {
  constexpr std::size_t kSteps = 3;
  for (int world = 1; world <= 4; ++world) {
    for (const Books& books : train<TypeParam>(world, kSteps)) {
      const std::vector<PhaseRecord>& phases = books.ddp.phases;
      ASSERT_EQ(phases.size(), 3 * kSteps);
      EXPECT_TRUE(books.ddp.calls.empty());
      for (std::size_t p = 0; p < phases.size(); ++p) {
        EXPECT_EQ(phases[p].what, static_cast<Phase>(p % 3));
        EXPECT_EQ(phases[p].device, 0);
        EXPECT_LE(phases[p].begin, phases[p].end);
        if (p > 0) {
          EXPECT_LE(phases[p - 1].end, phases[p].begin);
        }
      }
    }
  }
}

TYPED_TEST(LedgerOfSteps, sees_buckets_leave_during_backward_and_come_before_the_wait_is_over) {
  constexpr std::size_t kSteps = 3;
  for (const Books& books : train<TypeParam>(3, kSteps)) {
    std::size_t at = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      const PhaseRecord& backward = books.ddp.phases.at(3 * step + 1);
      const PhaseRecord& wait = books.ddp.phases.at(3 * step + 2);
      for (const CallRecord& call : calls_of(books.buckets[step], books.comm, at)) {
        EXPECT_GE(call.begin, backward.begin);
        EXPECT_LE(call.begin, backward.end);
        EXPECT_LE(call.end, wait.end);
      }
    }
  }
}

std::vector<Phase> phases_of(const Ledger& ledger) {
  std::vector<Phase> phases;
  for (const PhaseRecord& phase : ledger.phases) phases.push_back(phase.what);
  return phases;
}

TEST(LedgerOfDdp, has_one_wait_for_several_backwards_of_a_step) {
  spawn_ranks(2, [](Communicator& comm) {
    DistributedDataParallel ddp(std::make_shared<TwoHeadsImpl>(), comm);
    ddp.start_ledger();
    ddp.expect_backwards(2);
    for (const bool left : {true, false}) ddp(batch({2, 4}, comm.rank()), left).sum().backward();
    EXPECT_EQ(phases_of(ddp.take_ledger()),
              (std::vector{Phase::kForward, Phase::kBackward, Phase::kForward, Phase::kBackward,
                           Phase::kWait}));
  });
}

TEST(LedgerOfDdp, leaves_out_what_is_no_step) {
  spawn_ranks(2, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    auto x = batch({4, 12}, comm.rank()).requires_grad_();
    ddp.start_ledger();
    {
      const ::torch::NoGradGuard no_grad;
      ddp(x);
    }
    const auto y = ddp(x).sum();
    (void)::torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true);
    EXPECT_EQ(phases_of(ddp.take_ledger()), std::vector{Phase::kForward});
    y.backward();
  });
}

TEST(LedgerOfDdp, is_off_until_it_is_started_and_keeps_what_its_capacity_allows) {
  spawn_ranks(2, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    const auto step = [&] { ddp(batch({4, 12}, comm.rank())).sum().backward(); };
    EXPECT_THROW((void)ddp.take_ledger(), UsageError);
    EXPECT_THROW(ddp.start_ledger(0), UsageError);
    step();
    ddp.start_ledger(2);
    step();
    const Ledger ledger = ddp.take_ledger();
    EXPECT_EQ(phases_of(ledger), (std::vector{Phase::kForward, Phase::kBackward}));
    EXPECT_EQ(ledger.left_out, 1U);
    EXPECT_THROW((void)ddp.take_ledger(), UsageError);
  });
}

TEST(LedgerOfDdp, writes_down_only_phases_that_began_since_it_was_started) {
  spawn_ranks(2, [](Communicator& comm) {
    Mlp net;
    DistributedDataParallel ddp(net, comm);
    ddp.start_ledger();
    auto x = batch({4, 12}, comm.rank()).requires_grad_();
    const auto before = ::torch::tanh(x);
    before.register_hook([&](const ::torch::Tensor&) { ddp.start_ledger(); });
    ddp(before).sum().backward();
    EXPECT_EQ(phases_of(ddp.take_ledger()), std::vector{Phase::kWait});
  });
}

}  // namespace
}  // namespace paceline
