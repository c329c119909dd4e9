// SPDX-License-Identifier: Apache-2.0
// Every type, op, rank count and odd length, over memory links, against plain loops.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "paceline/paceline.h"
#include "paceline/plan/schedule.h"
#include "tests/comm/samples.h"

namespace paceline {
namespace {

using test::sample;
using test::unit_roundoff;
using test::value_of;

std::vector<std::size_t> counts_for(int world) {
  const auto n = static_cast<std::size_t>(world);
  return {0, 1, n - 1, n, n + 1, 1000, 4099};
}

template <typename T>
std::string bits_of(const std::vector<T>& data) {
  return {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T)};
}

// What the sum over ranks of element e is, and how far a correct sum may be from it: N - 1
// additions (and a division) in the accumulation type, one rounding to T.
struct Exact {
  double value = 0;
  double bound = 0;
};

template <typename T>
Exact exact_sum(const std::vector<std::vector<T>>& in, std::size_t e, bool mean) {
  using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
  double value = 0, magnitude = 0;
  for (const auto& rank : in) {
    value += value_of(rank[e]);
    magnitude += std::fabs(value_of(rank[e]));
  }
  const auto n = static_cast<double>(in.size());
  const double scale = mean ? n : 1;
  const double sums = (n + 1) * unit_roundoff<Sum>() * magnitude * 1.01;
  const double rounding = sizeof(T) == 2 ? std::fabs(value) * unit_roundoff<T>() * 1.01 : 0;
  return {value / scale, (sums + rounding) / scale};
}

template <typename T>
void check_element(const std::vector<std::vector<T>>& in, std::size_t e, ReduceOp op, T got) {
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    double want = value_of(in[0][e]);
    for (const auto& rank : in) {
      want = op == ReduceOp::kMin ? std::min(want, value_of(rank[e]))
                                  : std::max(want, value_of(rank[e]));
    }
    ASSERT_EQ(value_of(got), want);
  } else if constexpr (std::is_integral_v<T>) {
    std::uint64_t want = 0;  // wraps
    for (const auto& rank : in) want += static_cast<std::uint64_t>(rank[e]);
    ASSERT_EQ(got, static_cast<T>(want));
  } else {
    const Exact want = exact_sum(in, e, op == ReduceOp::kMean);
    ASSERT_NEAR(value_of(got), want.value, want.bound);
  }
}

template <typename T>
std::vector<std::vector<T>> inputs(int world, std::size_t count) {
  std::vector<std::vector<T>> in;
  for (int rank = 0; rank < world; ++rank) in.push_back(sample<T>(count, rank, count));
  return in;
}

// Results of all ranks; each thread writes its own entry.
template <typename T>
using PerRank = std::vector<std::vector<T>>;

template <typename T>
class Collectives : public ::testing::Test {
 protected:
  static std::vector<ReduceOp> ops() {
    std::vector<ReduceOp> all{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};
    if (!std::is_integral_v<T>) all.push_back(ReduceOp::kMean);
    return all;
  }
};

using Types =
    ::testing::Types<float, double, Float16, BFloat16, std::uint8_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(Collectives, Types);

TYPED_TEST(Collectives, allreduce_agrees_with_a_plain_loop_and_over_algorithms) {
  using T = TypeParam;
  constexpr std::array kAlgorithms{Algorithm::kRing, Algorithm::kPairwise, Algorithm::kOneStage,
                                   Algorithm::kRelay};
  for (int world = 1; world <= 8; ++world) {
    // [case][algorithm][rank]: all ranks run all cases in one go, since threads are dear to start
    std::vector<std::array<PerRank<T>, kAlgorithms.size()>> out;
    std::vector<PerRank<T>> in;
    for (const std::size_t count : counts_for(world)) in.push_back(inputs<T>(world, count));
    const auto all_ops = this->ops();
    for (const auto& input : in) {
      for (std::size_t op = 0; op < all_ops.size(); ++op)
        out.push_back({input, input, input, input});
    }
    spawn_ranks(world, [&](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      for (std::size_t c = 0; c < out.size(); ++c) {
        for (std::size_t a = 0; a < kAlgorithms.size(); ++a) {
          comm.allreduce(std::span<T>(out[c][a][rank]), all_ops[c % all_ops.size()],
                         {.algorithm = kAlgorithms[a]});
        }
      }
    });
    for (std::size_t c = 0; c < out.size(); ++c) {
      const auto& input = in[c / all_ops.size()];
      for (std::size_t a = 0; a < kAlgorithms.size(); ++a) {
        for (const auto& rank : out[c][a]) ASSERT_EQ(bits_of(rank), bits_of(out[c][a][0]));
        if (kAlgorithms[a] != Algorithm::kRelay) {
          ASSERT_EQ(bits_of(out[c][a][0]), bits_of(out[c][0][0]));
        }
        for (std::size_t e = 0; e < input[0].size(); ++e) {
          check_element<T>(input, e, all_ops[c % all_ops.size()], out[c][a][0][e]);
        }
      }
    }
  }
}

TYPED_TEST(Collectives, reduce_scatter_then_allgather_is_allreduce) {
  using T = TypeParam;
  for (const int world : {1, 2, 3, 5, 8}) {
    for (const std::size_t count : counts_for(world)) {
      const auto in = inputs<T>(world, count);
      PerRank<T> out(static_cast<std::size_t>(world), std::vector<T>(count));
      PerRank<T> want = in;
      spawn_ranks(world, [&](Communicator& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        std::vector<T> shard(comm.shard(count).size());
        comm.reduce_scatter(std::span<const T>(in[r]), std::span<T>(shard), ReduceOp::kSum);
        comm.allgather(std::span<const T>(shard), std::span<T>(out[r]));
        comm.allreduce(std::span<T>(want[r]), ReduceOp::kSum);
      });
      for (std::size_t r = 0; r < out.size(); ++r) ASSERT_EQ(bits_of(out[r]), bits_of(want[0]));
    }
  }
}

TYPED_TEST(Collectives, broadcast_copies_every_root_bit_for_bit) {
  using T = TypeParam;
  for (int world = 1; world <= 6; ++world) {
    for (int root = 0; root < world; ++root) {
      const std::size_t count = 1001;
      const auto in = inputs<T>(world, count);
      PerRank<T> out = in;
      spawn_ranks(world, [&](Communicator& comm) {
        comm.broadcast(std::span<T>(out[static_cast<std::size_t>(comm.rank())]), root);
      });
      for (const auto& rank : out)
        ASSERT_EQ(bits_of(rank), bits_of(in[static_cast<std::size_t>(root)]));
    }
  }
}

TEST(Allreduce, repeats_to_the_bit_under_any_segment_and_link_size) {
  const int world = 5;
  const std::size_t count = 2003;
  const auto in = inputs<float>(world, count);
  std::string first;
  for (const std::size_t segment : {4UL, 56UL, 4096UL, 524288UL}) {
    for (const std::size_t capacity : {7UL, 300UL, 1UL << 20}) {
      PerRank<float> out = in;
      if (capacity == 7 && segment == 4) continue;  // the same path as below, only slower
      spawn_ranks(world,
                  [&](Communicator& comm) {
                    auto& mine = out[static_cast<std::size_t>(comm.rank())];
                    comm.allreduce(std::span(mine), ReduceOp::kMean,
                                   {.algorithm = Algorithm::kRing});
                  },
                  {.link_capacity_bytes = capacity, .segment_bytes = segment});
      if (first.empty()) first = bits_of(out[0]);
      for (const auto& rank : out) ASSERT_EQ(bits_of(rank), first);
    }
  }
}

TEST(Allreduce, bits_do_not_depend_on_cuts_into_pieces) {
  const int world = 4;
  const std::size_t count = 5003;
  const auto in = inputs<float>(world, count);
  PerRank<float> whole = in;
  PerRank<float> cut = in;
  spawn_ranks(world, [&](Communicator& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    comm.allreduce(std::span(whole[r]), ReduceOp::kSum);
    std::vector<Piece> pieces;
    std::mt19937_64 random(r + 1);
    for (std::size_t at = 0; at < count;) {
      const std::size_t n = std::min(count - at, random() % 700);
      pieces.push_back({reinterpret_cast<std::byte*>(cut[r].data() + at), n * sizeof(float)});
      at += n;
    }
    const Buffer buffer{Dtype::kF32, count, pieces};
    comm.engine()
        .start({.what = Collective::kAllReduce, .op = ReduceOp::kSum, .count = count}, buffer,
               buffer)
        .wait();
  });
  for (const auto& rank : cut) EXPECT_EQ(bits_of(rank), bits_of(whole[0]));
}

TEST(Allreduce, has_the_same_bits_over_tcp_as_over_memory) {
  for (const int world : {2, 3, 5}) {
    for (const std::size_t count : {1000UL, 300007UL}) {
      const auto in = inputs<float>(world, count);
      PerRank<float> over_memory = in, over_tcp = in;
      const auto reduce_into = [](PerRank<float>& out) {
        return [&out](Communicator& comm) {
          comm.allreduce(std::span(out[static_cast<std::size_t>(comm.rank())]), ReduceOp::kMean);
        };
      };
      spawn_ranks(world, reduce_into(over_memory));
      spawn_ranks(world, reduce_into(over_tcp), {.link = LocalLink::kTcp});
      for (const auto& rank : over_tcp) ASSERT_EQ(bits_of(rank), bits_of(over_memory[0]));
    }
  }
}

TEST(Allreduce, takes_spans_that_are_off_by_one_byte) {
  const std::size_t count = 777;
  std::vector<std::vector<std::byte>> raw(3, std::vector<std::byte>(count * 4 + 1));
  const auto in = inputs<float>(3, count);
  PerRank<float> want = in;
  spawn_ranks(3, [&](Communicator& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    std::memcpy(raw[r].data() + 1, in[r].data(), count * 4);
    const Piece piece{raw[r].data() + 1, count * 4};
    const Buffer buffer{Dtype::kF32, count, {&piece, 1}};
    comm.engine()
        .start({.what = Collective::kAllReduce, .op = ReduceOp::kSum, .count = count}, buffer,
               buffer)
        .wait();
    comm.allreduce(std::span(want[r]), ReduceOp::kSum);
  });
  for (const auto& rank : raw)
    EXPECT_EQ(std::memcmp(rank.data() + 1, want[0].data(), count * 4), 0);
}

TEST(Allreduce, lets_nan_win_and_keeps_infinities_and_signed_zeros) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kPairwise, Algorithm::kOneStage}) {
    spawn_ranks(3, [&](Communicator& comm) {
      const bool odd = comm.rank() == 1;
      const std::vector<float> in{odd ? -kNan : 1.F, odd ? kInf : -kInf, odd ? kInf : 1.F,
                                  odd ? -0.F : 0.F, -0.F};
      const auto run = [&](ReduceOp op) {
        std::vector<float> data = in;
        comm.allreduce(std::span(data), op, {.algorithm = algorithm});
        return data;
      };
      const auto sum = run(ReduceOp::kSum), low = run(ReduceOp::kMin), high = run(ReduceOp::kMax);
      for (const auto* result : {&sum, &low, &high}) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>((*result)[0]), 0x7fc00000U);
      }
      EXPECT_EQ(std::bit_cast<std::uint32_t>(sum[1]), 0x7fc00000U);  // inf - inf
      EXPECT_EQ(sum[2], kInf);
      EXPECT_EQ(low[1], -kInf);
      EXPECT_TRUE(std::signbit(low[3]) && low[3] == 0);
      EXPECT_FALSE(std::signbit(high[3]));
      EXPECT_TRUE(std::signbit(sum[4]));
    });
  }
}

TEST(Barrier, holds_everyone_until_the_last_has_come) {
  for (int world = 1; world <= 9; ++world) {
    std::atomic<int> come = 0;
    spawn_ranks(world, [&](Communicator& comm) {
      for (int round = 1; round <= 20; ++round) {
        ++come;
        comm.barrier();
        EXPECT_GE(come.load(), world * round);
        comm.barrier();
      }
    });
  }
}

TEST(WorldOfOne, works_everywhere_and_sends_nothing) {
  spawn_ranks(1, [](Communicator& comm) {
    std::vector<float> data{1, 2, 3};
    comm.allreduce(std::span(data), ReduceOp::kMean);
    comm.broadcast(std::span(data), 0);
    std::vector<float> out(3);
    comm.reduce_scatter(std::span<const float>(data), std::span(out), ReduceOp::kSum);
    EXPECT_EQ(out, data);
    comm.allgather(std::span<const float>(data), std::span(out));
    EXPECT_EQ(out, data);
    comm.barrier();
    EXPECT_TRUE(comm.allreduce_async(std::span(data), ReduceOp::kSum).done());
    EXPECT_EQ(comm.traffic().at("").messages_sent, 0U);
  });
}

}  // namespace
}  // namespace paceline
