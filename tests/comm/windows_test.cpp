// SPDX-License-Identifier: Apache-2.0
// Collectives through shared memory: the bits of the ring, whoever's memory the others reach.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <latch>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "paceline/paceline.h"
#include "paceline/plan/cost.h"
#include "paceline/plan/schedule.h"
#include "paceline/sim/count.h"
#include "tests/comm/expected.h"
#include "tests/comm/outcomes.h"
#include "tests/plan/menu.h"

namespace paceline {
namespace {

using test::bits_of;
using test::inputs;
using test::sample;

constexpr LocalOptions kShm{.link = LocalLink::kShm};
#if defined(__SANITIZE_THREAD__)
constexpr int kMostRanks = 3;  // else it takes minutes
#else
constexpr int kMostRanks = 8;
#endif

/// Whose buffers lie in memory that the others reach.
enum class Where : std::uint8_t { kResident, kPrivate, kMixed };

/// A buffer of one rank, in memory of either kind.
template <typename T>
class Memory {
 public:
  Memory(Communicator& comm, Where where, const std::vector<T>& values) : count_(values.size()) {
    const bool resident =
        where == Where::kResident || (where == Where::kMixed && comm.rank() % 2 == 0);
    if (resident) {
      region_ = comm.engine().allocate(count_ * sizeof(T));
    } else {
      values_.resize(count_);
    }
    if (count_ != 0) std::memcpy(span().data(), values.data(), count_ * sizeof(T));
  }
  [[nodiscard]] std::span<T> span() {
    T* const data = region_.data ? reinterpret_cast<T*>(region_.data.get()) : values_.data();
    return {data, count_};
  }
  [[nodiscard]] std::vector<T> values() {
    const auto all = span();
    return {all.begin(), all.end()};
  }

 private:
  std::size_t count_;
  Region region_;
  std::vector<T> values_;
};

template <typename T>
std::vector<ReduceOp> ops() {
  std::vector<ReduceOp> all{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};
  if (!std::is_integral_v<T>) all.push_back(ReduceOp::kMean);
  return all;
}

/// What the ring over memory links leaves on every rank.
template <typename T>
std::string bits_of_ring(const std::vector<std::vector<T>>& in, ReduceOp op) {
  std::string bits;
  spawn_ranks(static_cast<int>(in.size()), [&](Communicator& comm) {
    std::vector<T> data = in[static_cast<std::size_t>(comm.rank())];
    comm.allreduce(std::span<T>(data), op, {.algorithm = Algorithm::kRing});
    if (comm.rank() == 0) bits = bits_of(data);
  });
  return bits;
}

template <typename T>
class Windows : public ::testing::Test {};
using Types =
    ::testing::Types<float, double, Float16, BFloat16, std::uint8_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(Windows, Types);

/// All-reduces `in` by each algorithm over windows, from each kind of memory.
template <typename T>
void check_allreduce(Communicator& comm, const std::vector<std::vector<T>>& in, ReduceOp op) {
  const auto& mine = in[static_cast<std::size_t>(comm.rank())];
  std::vector<T> ring = mine;
  comm.allreduce(std::span<T>(ring), op, {.algorithm = Algorithm::kRing});
  for (const Where where : {Where::kResident, Where::kPrivate, Where::kMixed}) {
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kOneStage}) {
      Memory<T> data(comm, where, mine);
      comm.allreduce(data.span(), op, {.algorithm = algorithm});
      ASSERT_TRUE(bits_of(data.values()) == bits_of(ring))
          << name_of(algorithm) << ' ' << name_of(op) << " of " << mine.size() << " over "
          << in.size() << ", memory " << static_cast<int>(where);
    }
  }
}

TYPED_TEST(Windows, allreduce_has_the_bits_of_the_ring_wherever_the_memory_lies) {
  using T = TypeParam;
  for (int world = 2; world <= kMostRanks; ++world) {
    spawn_ranks(
        world,
        [&](Communicator& comm) {
          const auto n = static_cast<std::size_t>(world);
          for (const std::size_t count : {std::size_t{0}, n - 1, n + 1, std::size_t{4099}}) {
            const auto in = inputs<T>(world, count);
            for (const ReduceOp op : ops<T>()) check_allreduce<T>(comm, in, op);
          }
        },
        kShm);
  }
}

TEST(OverWindows, take_long_buffers_in_many_slices) {
  for (const int world : {2, 3, 5}) {
    if (world > kMostRanks) break;
    constexpr std::size_t kCount = 1'000'003;
    const auto in = inputs<float>(world, kCount);
    const std::string want = bits_of_ring(in, ReduceOp::kMean);
    ASSERT_GT(plan::slices_for(Dtype::kF32, world, kCount), 5U);
    spawn_ranks(
        world,
        [&](Communicator& comm) {
          for (const Where where : {Where::kResident, Where::kPrivate, Where::kMixed}) {
            Memory<float> data(comm, where, in[static_cast<std::size_t>(comm.rank())]);
            comm.allreduce(data.span(), ReduceOp::kMean);
            EXPECT_TRUE(bits_of(data.values()) == want);
          }
        },
        kShm);
  }
}

/// One call of every kind on `count` elements against plain loops.
void check_the_other_collectives(Communicator& comm, Where where, std::size_t count) {
  const int world = comm.world_size();
  const auto rank = static_cast<std::size_t>(comm.rank());
  const auto in = inputs<float>(world, count);
  std::vector<float> want = in[rank];
  comm.allreduce(std::span(want), ReduceOp::kSum, {.algorithm = Algorithm::kRing});
  const Range mine = comm.shard(count);
  const auto part_of = [](const std::vector<float>& all, Range range) {
    return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(range.begin),
                              all.begin() + static_cast<std::ptrdiff_t>(range.end));
  };

  Memory<float> whole(comm, where, in[rank]);
  Memory<float> shard(comm, where, std::vector<float>(mine.size()));
  comm.reduce_scatter(std::span<const float>(whole.span()), shard.span(), ReduceOp::kSum);
  EXPECT_TRUE(bits_of(shard.values()) == bits_of(part_of(want, mine)));
  EXPECT_TRUE(bits_of(whole.values()) == bits_of(in[rank]));

  comm.allgather(std::span<const float>(shard.span()), whole.span());
  EXPECT_TRUE(bits_of(whole.values()) == bits_of(want));

  for (int root = 0; root < world; ++root) {
    Memory<float> data(comm, where, in[rank]);
    comm.broadcast(data.span(), root);
    EXPECT_TRUE(bits_of(data.values()) == bits_of(in[static_cast<std::size_t>(root)]));
  }
  comm.barrier();
}

TEST(OverWindows, carry_every_other_collective_too) {
  for (int world = 2; world <= std::min(6, kMostRanks); ++world) {
    spawn_ranks(
        world,
        [&](Communicator& comm) {
          for (const Where where : {Where::kResident, Where::kPrivate, Where::kMixed}) {
            for (const std::size_t count : {0U, 1U, 5U, 1000U, 300001U}) {
              check_the_other_collectives(comm, where, count);
            }
          }
        },
        kShm);
  }
}

TEST(OverWindows, serve_input_and_output_that_are_apart) {
  const auto in = inputs<double>(3, 1000);
  const std::string want = bits_of_ring(in, ReduceOp::kMax);
  spawn_ranks(
      3,
      [&](Communicator& comm) {
        for (const Where where : {Where::kResident, Where::kPrivate, Where::kMixed}) {
          Memory<double> from(comm, where, in[static_cast<std::size_t>(comm.rank())]);
          Memory<double> to(comm, where, std::vector<double>(1000));
          const Piece source{reinterpret_cast<std::byte*>(from.span().data()), 8000};
          const Piece target{reinterpret_cast<std::byte*>(to.span().data()), 8000};
          comm.engine()
              .start({.op = ReduceOp::kMax, .count = 1000, .algorithm = Algorithm::kDirect},
                     {Dtype::kF64, 1000, {&source, 1}}, {Dtype::kF64, 1000, {&target, 1}})
              .wait();
          EXPECT_TRUE(bits_of(to.values()) == want);
          EXPECT_TRUE(bits_of(from.values()) == bits_of(in[static_cast<std::size_t>(comm.rank())]));
        }
      },
      kShm);
}

TEST(OverWindows, are_made_of_any_number_of_pieces) {
  constexpr std::size_t kCount = 5000;
  const auto in = inputs<float>(3, kCount);
  const std::string want = bits_of_ring(in, ReduceOp::kSum);
  spawn_ranks(
      3,
      [&](Communicator& comm) {
        for (const std::size_t each : {1U, 3U, 700U}) {  // 5000 pieces are more than a slot holds
          Memory<float> data(comm, Where::kMixed, in[static_cast<std::size_t>(comm.rank())]);
          std::vector<Piece> pieces;
          const std::size_t cut = each + static_cast<std::size_t>(comm.rank());
          for (std::size_t at = 0; at < kCount; at += cut) {
            const std::size_t n = std::min(cut, kCount - at);
            pieces.push_back({reinterpret_cast<std::byte*>(data.span().data() + at), n * 4});
          }
          const Buffer buffer{Dtype::kF32, kCount, pieces};
          comm.engine()
              .start({.count = kCount, .algorithm = Algorithm::kDirect}, buffer, buffer)
              .wait();
          EXPECT_TRUE(bits_of(data.values()) == want);
        }
      },
      kShm);
}

TEST(OverWindows, serve_more_calls_in_flight_than_there_are_slots) {
  constexpr std::size_t kCalls = 100;
  spawn_ranks(
      3,
      [&](Communicator& comm) {
        std::vector<Memory<std::int32_t>> data;
        std::vector<Work> works;
        for (std::size_t i = 0; i < kCalls; ++i) {
          const std::vector<std::int32_t> values(100, static_cast<std::int32_t>(i) + comm.rank());
          data.emplace_back(comm, i % 2 == 0 ? Where::kMixed : Where::kPrivate, values);
        }
        for (std::size_t i = 0; i < kCalls; ++i) {
          const Algorithm algorithm = i % 3 == 0   ? Algorithm::kDirect
                                      : i % 3 == 1 ? Algorithm::kOneStage
                                                   : Algorithm::kRing;
          works.push_back(
              comm.allreduce_async(data[i].span(), ReduceOp::kSum, {.algorithm = algorithm}));
        }
        for (std::size_t i = kCalls; i-- > 0;) works[i].wait();
        for (std::size_t i = 0; i < kCalls; ++i) {
          const auto want = static_cast<std::int32_t>(3 * i + 3);
          EXPECT_EQ(data[i].values(), std::vector<std::int32_t>(100, want));
        }
      },
      kShm);
}

/// What one call of `dish` moved, as each rank's ledger says: reads and writes of others' windows.
std::vector<sim::LinkTraffic> links_of(const std::vector<Ledger>& of_rank, std::size_t call) {
  std::map<std::pair<int, int>, sim::LinkTraffic> links;
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (const auto& [peer, traffic] : of_rank[r].calls.at(call).peers) {
      links[{rank, peer}].messages += traffic.messages_sent;
      links[{rank, peer}].bytes += traffic.payload_bytes_sent;
      links[{peer, rank}].bytes += traffic.payload_bytes_received;
      EXPECT_EQ(traffic.header_bytes_sent + traffic.header_bytes_received, 0U);
    }
  }
  std::vector<sim::LinkTraffic> list;
  for (auto& [ends, link] : links) {
    link.from = ends.first;
    link.to = ends.second;
    if (link.messages != 0 || link.bytes != 0) list.push_back(link);
  }
  return list;
}

Traffic sum_of(const CallRecord& call) {
  Traffic sum;
  for (const PeerTraffic& with : call.peers) sum += with.traffic;
  return sum;
}

/// One call of `shape`, of floats in private memory.
void run(Communicator& comm, Algorithm algorithm, plan::Shape shape) {
  shape.rank = comm.rank();
  const plan::Schedule schedule = plan::make_schedule(algorithm, shape);
  std::vector<float> in(schedule.in.size());
  std::vector<float> out(schedule.out.size());
  const Piece from{reinterpret_cast<std::byte*>(in.data()), in.size() * sizeof(float)};
  const Piece to{reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(float)};
  comm.engine()
      .start({.what = shape.what, .root = shape.root, .count = shape.count, .algorithm = algorithm},
             {Dtype::kF32, in.size(), {&from, 1}}, {Dtype::kF32, out.size(), {&to, 1}})
      .wait();
}

TEST(OverWindows, count_what_formula_and_simulator_say) {
  for (int world = 2; world <= std::min(6, kMostRanks); ++world) {
    std::vector<std::pair<Algorithm, plan::Shape>> cases;
    for (const plan::Dish& dish : plan::menu()) {
      for (const std::uint64_t count : {0U, 1U, 1003U, 200'000U}) {
        if (!dish.windows || (dish.what == Collective::kBarrier && count != 0)) continue;
        cases.emplace_back(dish.algorithm,
                           plan::Shape{.what = dish.what,
                                       .world = world,
                                       .root = dish.what == Collective::kBroadcast ? world / 2 : 0,
                                       .count = count,
                                       .windows = true,
                                       .slices = plan::slices_for(Dtype::kF32, world, count)});
      }
    }
    std::vector<Ledger> of_rank(static_cast<std::size_t>(world));
    spawn_ranks(
        world,
        [&](Communicator& comm) {
          comm.start_ledger();
          for (const auto& [algorithm, shape] : cases) run(comm, algorithm, shape);
          of_rank[static_cast<std::size_t>(comm.rank())] = comm.take_ledger();
        },
        kShm);
    for (std::size_t c = 0; c < cases.size(); ++c) {
      auto [algorithm, shape] = cases[c];
      SCOPED_TRACE(::testing::Message() << name_of(algorithm) << ' ' << name_of(shape.what) << ' '
                                        << shape.count << " over " << world);
      auto simulated = sim::count(algorithm, shape, Dtype::kF32);
      for (auto& link : simulated) link.elements = 0;  // which ledgers do not count
      EXPECT_TRUE(links_of(of_rank, c) == simulated);
      for (shape.rank = 0; shape.rank < world; ++shape.rank) {
        const Traffic sum = sum_of(of_rank[static_cast<std::size_t>(shape.rank)].calls[c]);
        EXPECT_EQ(sum.payload_bytes_sent, plan::formula_bytes_sent(algorithm, shape, Dtype::kF32));
        EXPECT_EQ(sum.payload_bytes_received,
                  plan::formula_bytes_read(algorithm, shape, Dtype::kF32));
      }
    }
  }
}

TEST(OverWindows, say_which_memory_there_is_no_room_for) {
  spawn_ranks(
      2,
      [](Communicator& comm) {
        EXPECT_TRUE(comm.engine().shares_memory());
        try {
          (void)comm.engine().allocate(std::size_t{1} << 60);
          ADD_FAILURE() << "an exbibyte was there";
        } catch (const UsageError& error) {
          EXPECT_NE(std::string(error.what()).find("no shared memory of"), std::string::npos)
              << error.what();
        }
        comm.barrier();  // nobody is hurt
      },
      kShm);
}

TEST(OverWindows, keep_a_region_when_the_communicator_has_gone) {
  std::array<Region, 2> kept;
  spawn_ranks(
      2,
      [&](Communicator& comm) {
        Region region = comm.engine().allocate(1000);
        std::memset(region.data.get(), 7, 1000);
        kept[static_cast<std::size_t>(comm.rank())] = region;
      },
      kShm);
  for (const Region& region : kept) EXPECT_EQ(region.data.get()[999], std::byte{7});
}

void expect_on_all(const std::vector<test::Outcome>& all, CommErrc code, const std::string& text) {
  for (const test::Outcome& outcome : all) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.code, code) << outcome.text;
    EXPECT_NE(outcome.text.find(text), std::string::npos) << outcome.text;
  }
}

TEST(OverWindows, end_calls_that_differ_with_both_sides_on_every_rank) {
  for (const std::size_t count : {std::size_t{100}, std::size_t{100'000}}) {
    expect_on_all(test::outcomes(
                      3,
                      [&](Communicator& comm) {
                        std::vector<float> data(comm.rank() == 1 ? count + 1 : count);
                        comm.allreduce(std::span(data), ReduceOp::kSum);
                        comm.barrier();
                        comm.barrier();
                      },
                      kShm),
                  CommErrc::kMismatch, "f32[" + std::to_string(count + 1) + "]");
  }
  expect_on_all(test::outcomes(
                    3,
                    [](Communicator& comm) {
                      std::vector<float> data(100'000);
                      comm.allreduce(
                          std::span(data), ReduceOp::kSum,
                          {.algorithm = comm.rank() == 2 ? Algorithm::kRing : Algorithm::kDirect});
                      comm.barrier();
                    },
                    kShm),
                CommErrc::kMismatch, "by ring");
}

TEST(OverWindows, name_the_rank_that_has_left) {
  std::vector<std::string> texts(3);
  try {
    spawn_ranks(
        3,
        [&](Communicator& comm) {
          std::vector<float> data(100'000);
          if (comm.rank() == 1) {
            comm.allreduce(std::span(data), ReduceOp::kSum);
            throw std::runtime_error("rank 1 has had enough");
          }
          try {  // rank 1 may be gone before the first call has ended here
            for (int i = 0; i < 2; ++i) comm.allreduce(std::span(data), ReduceOp::kSum);
          } catch (const CommError& error) {
            texts[static_cast<std::size_t>(comm.rank())] = error.what();
            throw;
          }
        },
        kShm);
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 1 has had enough");
  }
  for (const int rank : {0, 2}) {
    EXPECT_NE(texts[static_cast<std::size_t>(rank)].find("rank 1"), std::string::npos)
        << texts[static_cast<std::size_t>(rank)];
  }
}

TEST(OverWindows, can_be_memory_that_exists_once) {
  spawn_ranks(
      3,
      [](Communicator& comm) {
        const Region region = comm.share(3 * 4096);
        ASSERT_EQ(region.bytes, 3U * 4096);
        auto* const mine = region.data.get() + static_cast<std::ptrdiff_t>(4096 * comm.rank());
        EXPECT_EQ(*mine, std::byte{0});
        std::memset(mine, comm.rank() + 1, 4096);
        comm.barrier();
        for (std::ptrdiff_t rank = 0; rank < 3; ++rank) {
          EXPECT_EQ(region.data.get()[4096 * rank + 17], static_cast<std::byte>(rank + 1));
        }
        comm.barrier();
        std::span<float> shared(reinterpret_cast<float*>(region.data.get()), 3072);
        if (comm.rank() == 1) {
          try {
            comm.allreduce(shared, ReduceOp::kSum);
            ADD_FAILURE() << "memory of rank 0 was reduced";
          } catch (const UsageError& error) {
            EXPECT_NE(std::string(error.what()).find("belongs to rank 0"), std::string::npos)
                << error.what();
          }
        } else {
          std::vector<float> own(3072);
          EXPECT_THROW(comm.allreduce(std::span(own), ReduceOp::kSum), CommError);
        }
      },
      kShm);
  spawn_ranks(1, [](Communicator& comm) { EXPECT_EQ(comm.share(100).bytes, 100U); });
  spawn_ranks(2, [](Communicator& comm) { EXPECT_THROW((void)comm.share(100), UsageError); });
}

TEST(OverWindows, that_exists_once_is_waited_for_no_longer_than_told) {
  std::latch given_up(1);
  spawn_ranks(
      2,
      [&](Communicator& comm) {
        if (comm.rank() == 0) return given_up.wait();
        try {
          (void)comm.share(100, {.timeout = std::chrono::milliseconds(50)});
          ADD_FAILURE() << "rank 0 has not come";
        } catch (const CommError& error) {
          EXPECT_EQ(error.code(), CommErrc::kTimeout);
          EXPECT_NE(std::string(error.what()).find("shared memory"), std::string::npos)
              << error.what();
        }
        given_up.count_down();
      },
      kShm);
}

TEST(OverWindows, of_nobody_have_no_room_for_an_exbibyte) {
  spawn_ranks(
      2,
      [](Communicator& comm) {
        EXPECT_THROW((void)comm.share(std::size_t{1} << 60), UsageError);
        comm.barrier();
      },
      kShm);
}

TEST(OverWindows, are_asked_for_by_direct_alone) {
  spawn_ranks(2, [](Communicator& comm) {
    EXPECT_FALSE(comm.engine().shares_memory());
    std::vector<float> data(10);
    try {
      comm.allreduce(std::span(data), ReduceOp::kSum, {.algorithm = Algorithm::kDirect});
      ADD_FAILURE() << "direct went through a link without windows";
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "allreduce cannot be done by direct: the ranks share no memory");
    }
  });
}

}  // namespace
}  // namespace paceline
