// SPDX-License-Identifier: Apache-2.0
// Every type, op, rank count, root and odd length, over memory links, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "paceline/paceline.h"
#include "paceline/plan/schedule.h"
#include "tests/comm/expected.h"

namespace paceline {
namespace {

using test::bits_of;
using test::check_element;
using test::counts_for;
using test::inputs;
using test::PerRank;

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

// What allreduce gives has been checked above, so equal bits are enough here.
TYPED_TEST(Collectives, reduce_scatter_gives_each_rank_its_chunk_of_the_allreduce) {
  using T = TypeParam;
  for (int world = 1; world <= 8; ++world) {
    spawn_ranks(world, [&](Communicator& comm) {
      for (const std::size_t count : counts_for(world)) {
        const auto in = test::sample<T>(count, comm.rank(), count);
        const Range mine = comm.shard(count);
        for (const ReduceOp op : this->ops()) {
          std::vector<T> want = in;
          comm.allreduce(std::span<T>(want), op);
          const std::vector<T> chunk(want.begin() + static_cast<std::ptrdiff_t>(mine.begin),
                                     want.begin() + static_cast<std::ptrdiff_t>(mine.end));
          for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kPairwise}) {
            std::vector<T> shard(mine.size());
            comm.reduce_scatter(std::span<const T>(in), std::span<T>(shard), op,
                                {.algorithm = algorithm});
            ASSERT_EQ(bits_of(shard), bits_of(chunk));
          }
        }
      }
    });
  }
}

TYPED_TEST(Collectives, allgather_joins_the_shards_in_the_order_of_ranks) {
  using T = TypeParam;
  for (int world = 1; world <= 8; ++world) {
    spawn_ranks(world, [&](Communicator& comm) {
      for (const std::size_t count : counts_for(world)) {
        std::vector<T> want;
        for (int rank = 0; rank < world; ++rank) {
          const auto shard = test::sample<T>(count, rank, plan::chunk(count, world, rank).size());
          want.insert(want.end(), shard.begin(), shard.end());
        }
        const auto mine = test::sample<T>(count, comm.rank(), comm.shard(count).size());
        for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kPairwise}) {
          std::vector<T> out(count);
          comm.allgather(std::span<const T>(mine), std::span<T>(out), {.algorithm = algorithm});
          ASSERT_EQ(bits_of(out), bits_of(want));
        }
      }
    });
  }
}

TYPED_TEST(Collectives, broadcast_copies_every_root_bit_for_bit) {
  using T = TypeParam;
  for (int world = 1; world <= 8; ++world) {
    spawn_ranks(world, [&](Communicator& comm) {
      for (const std::size_t count : counts_for(world)) {
        for (int root = 0; root < world; ++root) {
          auto data = test::sample<T>(count, comm.rank(), count);
          comm.broadcast(std::span<T>(data), root);
          ASSERT_EQ(bits_of(data), bits_of(test::sample<T>(count, root, count)));
        }
      }
    });
  }
}

}  // namespace
}  // namespace paceline
