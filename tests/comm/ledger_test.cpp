// SPDX-License-Identifier: Apache-2.0
// What the ledger writes down, beside what the formulas promise and what the simulator counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <ostream>
#include <string>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/paceline.h"
#include "paceline/plan/cost.h"
#include "paceline/sim/count.h"
#include "tests/comm/outcomes.h"
#include "tests/plan/menu.h"

namespace paceline {
namespace {

using plan::Dish;
using plan::Shape;

struct Case {
  Dish dish;
  Shape shape;
  Dtype dtype;
};

std::string text_of(const Case& one) {
  return std::string(name_of(one.dish.algorithm)) + ' ' + std::string(name_of(one.dish.what)) +
         ' ' + std::string(name_of(one.dtype)) + '[' + std::to_string(one.shape.count) + "] root " +
         std::to_string(one.shape.root) + " over " + std::to_string(one.shape.world);
}

/// What a directed link carried in one call.
struct Edge {
  int from = 0;
  int to = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  auto operator<=>(const Edge&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Edge& edge) {
  return out << edge.from << "->" << edge.to << ": " << edge.messages << " messages, " << edge.bytes
             << " bytes";
}
using Edges = std::vector<Edge>;

enum class View : std::uint8_t { kSender, kReceiver };

Edges edges_of(const std::vector<Ledger>& of_rank, std::size_t call, View view) {
  Edges edges;
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (const auto& [peer, traffic] : of_rank[r].calls.at(call).peers) {
      if (view == View::kSender && traffic.messages_sent != 0) {
        edges.push_back({rank, peer, traffic.messages_sent, traffic.payload_bytes_sent});
      }
      if (view == View::kReceiver && traffic.messages_received != 0) {
        edges.push_back({peer, rank, traffic.messages_received, traffic.payload_bytes_received});
      }
    }
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

Edges simulated(const Case& one) {
  Edges edges;
  for (const sim::LinkTraffic& link : sim::count(one.dish.algorithm, one.shape, one.dtype)) {
    edges.push_back({link.from, link.to, link.messages, link.bytes});
  }
  return edges;
}

/// As simulated(), but with messages cut into frames of at most `segment_bytes`.
Edges simulated_frames(const Case& one, std::size_t segment_bytes) {
  Edges edges = simulated(one);
  for (Edge& edge : edges) {
    edge.messages = 0;
    Shape shape = one.shape;
    shape.rank = edge.from;
    for (const plan::Step& step : plan::make_schedule(one.dish.algorithm, shape).steps) {
      if (step.kind != plan::Kind::kSend || step.peer != edge.to) continue;
      const std::uint64_t segment = segment_bytes / size_of(one.dtype, step.wire);
      edge.messages += std::max<std::uint64_t>(1, (step.elements.size() + segment - 1) / segment);
    }
  }
  return edges;
}

void run(Communicator& comm, const Case& one) {
  Shape shape = one.shape;
  shape.rank = comm.rank();
  const plan::Schedule schedule = plan::make_schedule(one.dish.algorithm, shape);
  std::vector<std::byte> in(schedule.in.size() * size_of(one.dtype));
  std::vector<std::byte> out(schedule.out.size() * size_of(one.dtype));
  const Piece from{in.data(), in.size()};
  const Piece to{out.data(), out.size()};
  const Call call{.what = one.dish.what,
                  .root = shape.root,
                  .count = shape.count,
                  .label = text_of(one),
                  .algorithm = one.dish.algorithm};
  const Buffer to_send{one.dtype, schedule.in.size(), {&from, 1}};
  const Buffer to_fill{one.dtype, schedule.out.size(), {&to, 1}};
  comm.engine().start(call, to_send, to_fill).wait();
}

/// The ledgers of all ranks; each holds one call per case, in that order.
std::vector<Ledger> ledgers_of(int world,
                               const std::vector<Case>& cases,
                               const LocalOptions& options) {
  std::vector<Ledger> of_rank(static_cast<std::size_t>(world));
  spawn_ranks(
      world,
      [&](Communicator& comm) {
        comm.start_ledger();
        for (const Case& one : cases) run(comm, one);
        of_rank[static_cast<std::size_t>(comm.rank())] = comm.take_ledger();
      },
      options);
  return of_rank;
}

std::vector<Case> every_case(int world) {
  const auto n = static_cast<std::uint64_t>(world);
  std::vector<Case> cases;
  for (const Dish& dish : plan::menu()) {
    if (dish.windows) continue;  // comm.windows
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kI64, Dtype::kU8}) {
      for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, n - 1, n + 1,
                                        std::uint64_t{1000}, std::uint64_t{10007}}) {
        const bool rooted = dish.what == Collective::kBroadcast;
        const int root = rooted ? static_cast<int>(count % n) : 0;
        const std::uint64_t size = dish.what == Collective::kBarrier ? 0 : count;
        cases.push_back(
            {dish, {.what = dish.what, .world = world, .root = root, .count = size}, dtype});
      }
    }
  }
  return cases;
}

void expect_headers_and_times(const CallRecord& call, const Case& one, std::size_t sequence) {
  EXPECT_EQ(call.sequence, sequence);
  EXPECT_EQ(call.what, one.dish.what);
  EXPECT_EQ(call.algorithm, one.dish.algorithm);
  EXPECT_EQ(call.dtype, one.dtype);
  EXPECT_EQ(call.root, one.shape.root);
  EXPECT_EQ(call.count, one.shape.count);
  EXPECT_EQ(call.label, text_of(one));
  EXPECT_LE(call.begin, call.end);
  for (const auto& [peer, traffic] : call.peers) {
    EXPECT_EQ(traffic.header_bytes_sent, 56 * traffic.messages_sent);
    EXPECT_EQ(traffic.header_bytes_received, 56 * traffic.messages_received);
    EXPECT_EQ(traffic.calls, 0U);
  }
}

Traffic sum_of(const CallRecord& call) {
  Traffic sum;
  for (const PeerTraffic& with : call.peers) sum += with.traffic;
  return sum;
}

void expect_formulas(const CallRecord& call, const Case& one, int rank) {
  Shape shape = one.shape;
  shape.rank = rank;
  const Traffic sum = sum_of(call);
  EXPECT_EQ(sum.payload_bytes_sent, plan::formula_bytes_sent(one.dish.algorithm, shape, one.dtype));
  EXPECT_EQ(sum.messages_sent, plan::documented_messages(one.dish, shape));
}

class LedgerOver : public ::testing::TestWithParam<LocalLink> {};
INSTANTIATE_TEST_SUITE_P(Links,
                         LedgerOver,
                         ::testing::Values(LocalLink::kMemory, LocalLink::kTcp),
                         [](const auto& link) {
                           return link.param == LocalLink::kMemory ? "memory" : "tcp";
                         });

TEST_P(LedgerOver, agrees_with_formula_and_simulator_for_every_algorithm_and_collective) {
  for (int world = 2; world <= 8 && !HasFailure(); ++world) {
    const std::vector<Case> cases = every_case(world);
    const std::vector<Ledger> of_rank = ledgers_of(world, cases, {.link = GetParam()});
    for (std::size_t c = 0; c < cases.size() && !HasFailure(); ++c) {
      const Case& one = cases[c];
      SCOPED_TRACE(text_of(one));
      EXPECT_EQ(edges_of(of_rank, c, View::kSender), simulated(one));
      EXPECT_EQ(edges_of(of_rank, c, View::kReceiver), simulated(one));
      for (int rank = 0; rank < world; ++rank) {
        const Ledger& ledger = of_rank[static_cast<std::size_t>(rank)];
        ASSERT_EQ(ledger.calls.size(), cases.size());
        expect_headers_and_times(ledger.calls[c], one, c);
        expect_formulas(ledger.calls[c], one, rank);
      }
    }
  }
}

TEST_P(LedgerOver, counts_a_message_for_each_frame_and_the_same_bytes) {
  const int world = 3;
  const std::size_t segment_bytes = 64;
  const std::vector<Case> cases = every_case(world);
  const std::vector<Ledger> of_rank =
      ledgers_of(world, cases, {.link = GetParam(), .segment_bytes = segment_bytes});
  for (std::size_t c = 0; c < cases.size() && !HasFailure(); ++c) {
    const Case& one = cases[c];
    if (one.dish.what == Collective::kBarrier) continue;
    SCOPED_TRACE(text_of(one));
    EXPECT_EQ(edges_of(of_rank, c, View::kSender), simulated_frames(one, segment_bytes));
    EXPECT_EQ(edges_of(of_rank, c, View::kReceiver), simulated_frames(one, segment_bytes));
  }
}

TEST(Ledger, adds_up_to_traffic) {
  spawn_ranks(3, [](Communicator& comm) {
    std::vector<float> data(1000);
    comm.allreduce(std::span(data), ReduceOp::kSum, {.label = "before"});
    comm.start_ledger();
    for (int i = 0; i < 3; ++i)
      comm.allreduce(std::span(data), ReduceOp::kSum, {.label = "during"});
    Traffic sum;
    for (const CallRecord& call : comm.take_ledger().calls) {
      sum += sum_of(call);
      ++sum.calls;
    }
    EXPECT_EQ(sum, comm.traffic().at("during"));
    EXPECT_EQ(comm.traffic().at("before").calls, 1U);
    EXPECT_EQ(3 * comm.traffic().at("before").payload_bytes_sent, sum.payload_bytes_sent);
  });
}

TEST(Ledger, lists_calls_in_the_order_in_which_they_were_issued) {
  spawn_ranks(4, [](Communicator& comm) {
    comm.start_ledger();
    std::vector<std::vector<double>> data;
    for (std::size_t i = 0; i < 20; ++i) data.emplace_back(i % 2 == 0 ? 30000 : 3);
    std::vector<Work> calls;
    for (auto& one : data) calls.push_back(comm.allreduce_async(std::span(one), ReduceOp::kSum));
    for (auto& call : calls) call.wait();
    const Ledger ledger = comm.take_ledger();
    ASSERT_EQ(ledger.calls.size(), 20U);
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(ledger.calls[i].sequence, i);
      EXPECT_EQ(ledger.calls[i].count, data[i].size());
      if (i > 0) {
        EXPECT_LE(ledger.calls[i - 1].begin, ledger.calls[i].begin);
      }
    }
  });
}

TEST(Ledger, keeps_what_its_capacity_allows_and_counts_the_rest) {
  spawn_ranks(2, [](Communicator& comm) {
    EXPECT_THROW(comm.start_ledger(0), UsageError);
    comm.start_ledger(2);
    for (int i = 0; i < 5; ++i) comm.barrier({.label = std::to_string(i)});
    const Ledger ledger = comm.take_ledger();
    ASSERT_EQ(ledger.calls.size(), 2U);
    EXPECT_EQ(ledger.calls[1].label, "1");
    EXPECT_EQ(ledger.left_out, 3U);
  });
}

TEST(Ledger, is_off_until_it_is_started_and_starts_anew_each_time) {
  spawn_ranks(2, [](Communicator& comm) {
    EXPECT_THROW((void)comm.take_ledger(), UsageError);
    comm.start_ledger();
    comm.barrier({.label = "forgotten"});
    comm.start_ledger();
    comm.barrier({.label = "kept"});
    const Ledger ledger = comm.take_ledger();
    ASSERT_EQ(ledger.calls.size(), 1U);
    EXPECT_EQ(ledger.calls[0].label, "kept");
    EXPECT_EQ(ledger.calls[0].sequence, 1U);
    EXPECT_THROW((void)comm.take_ledger(), UsageError);
    comm.barrier({.label = "off"});
    comm.start_ledger();
    EXPECT_TRUE(comm.take_ledger().calls.empty());
  });
}

TEST(Ledger, of_one_rank_has_calls_without_peers) {
  spawn_ranks(1, [](Communicator& comm) {
    comm.start_ledger();
    std::vector<float> data(10);
    comm.allreduce(std::span(data), ReduceOp::kSum);
    const Ledger ledger = comm.take_ledger();
    ASSERT_EQ(ledger.calls.size(), 1U);
    EXPECT_TRUE(ledger.calls[0].peers.empty());
  });
}

TEST(Ledger, leaves_out_a_call_that_is_in_flight_when_it_is_taken) {
  std::latch taken(2);
  spawn_ranks(2, [&](Communicator& comm) {
    std::vector<float> data(1000);
    comm.start_ledger();
    Work work;
    if (comm.rank() == 0) {  // it cannot end before rank 1 has come
      work = comm.allreduce_async(std::span(data), ReduceOp::kSum);
      EXPECT_TRUE(comm.take_ledger().calls.empty());
      comm.start_ledger();
    }
    taken.arrive_and_wait();
    if (comm.rank() == 1) work = comm.allreduce_async(std::span(data), ReduceOp::kSum);
    work.wait();
    comm.barrier();
    const Ledger ledger = comm.take_ledger();
    EXPECT_EQ(ledger.calls.size(), comm.rank() == 0 ? 1U : 2U);
    EXPECT_EQ(ledger.calls.back().what, Collective::kBarrier);
    EXPECT_EQ(comm.traffic().at("").calls, 2U);
  });
}

TEST(Ledger, holds_what_a_failed_call_moved) {
  std::latch failed(2);
  std::vector<Ledger> of_rank(3);
  test::outcomes(3, [&](Communicator& comm) {
    if (comm.rank() == 2) return failed.wait();
    comm.start_ledger();
    std::vector<float> data(300);
    try {
      comm.allreduce(std::span(data), ReduceOp::kSum,
                     {.label = "never",
                      .algorithm = Algorithm::kRing,
                      .timeout = std::chrono::milliseconds(300)});
      ADD_FAILURE() << "a sum without rank 2";
    } catch (const CommError&) {
      of_rank[static_cast<std::size_t>(comm.rank())] = comm.take_ledger();
    }
    failed.count_down();
  });
  // Rank 0 gives its term of chunk 2 to rank 1 and then waits for rank 2.
  ASSERT_EQ(of_rank[0].calls.size(), 1U);
  const CallRecord& call = of_rank[0].calls[0];
  EXPECT_EQ(call.label, "never");
  EXPECT_GE(call.end - call.begin, std::chrono::milliseconds(300));
  const Edges expected{{0, 1, 1, 400}};
  EXPECT_EQ(edges_of({of_rank[0]}, 0, View::kSender), expected);
  EXPECT_TRUE(edges_of({of_rank[0]}, 0, View::kReceiver).empty());
  ASSERT_EQ(of_rank[1].calls.size(), 1U);
  EXPECT_EQ(sum_of(of_rank[1].calls[0]).payload_bytes_received, 400U);
}

TEST(Ledger, has_no_record_of_a_call_that_was_refused) {
  spawn_ranks(1, [](Communicator& comm) {
    comm.start_ledger();
    std::vector<float> data(10);
    EXPECT_THROW(
        comm.allreduce(std::span(data), ReduceOp::kSum, {.timeout = std::chrono::milliseconds(0)}),
        UsageError);
    EXPECT_TRUE(comm.take_ledger().calls.empty());
  });
}

TEST(Ledger, of_a_communicator_that_was_moved_from_is_refused) {
  std::vector<Communicator> ranks = make_local_ranks(1);
  const Communicator mine = std::move(ranks[0]);
  EXPECT_THROW(ranks[0].start_ledger(), UsageError);
  EXPECT_THROW((void)ranks[0].take_ledger(), UsageError);
}

}  // namespace
}  // namespace paceline
