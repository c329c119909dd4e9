// SPDX-License-Identifier: Apache-2.0
// Collectives through shared memory: the bits of the ring, whoever's memory the others reach.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "paceline/paceline.h"
#include "paceline/plan/schedule.h"
#include "tests/comm/expected.h"
#include "tests/comm/windows_support.h"

namespace paceline {
namespace {

using test::bits_of;
using test::inputs;
using test::kMostRanks;
using test::kShm;

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

}  // namespace
}  // namespace paceline
