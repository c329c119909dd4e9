// SPDX-License-Identifier: Apache-2.0
// The bits of a sum depend on the ranks and the count only: not on links, algorithms or cuts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "paceline/paceline.h"
#include "tests/comm/expected.h"

namespace paceline {
namespace {

using test::bits_of;
using test::inputs;
using test::PerRank;

/// The same buffer cut into pieces, other ones on each rank.
template <typename T>
std::vector<Piece> cut(std::vector<T>& data, int rank) {
  std::vector<Piece> pieces;
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  for (std::size_t at = 0; at < data.size();) {
    const std::size_t n = std::min(data.size() - at, random() % 700);
    pieces.push_back({reinterpret_cast<std::byte*>(data.data() + at), n * sizeof(T)});
    at += n;
  }
  return pieces;
}

constexpr std::array kOrdered{Algorithm::kRing, Algorithm::kPairwise, Algorithm::kOneStage};

/// Means by each algorithm, of whole and of cut buffers; all must have the bits of `want`.
template <typename T>
void check_all(Communicator& comm, const PerRank<T>& in, const std::string& want) {
  const auto& mine = in[static_cast<std::size_t>(comm.rank())];
  for (const Algorithm algorithm : kOrdered) {
    std::vector<T> whole = mine, pieces = mine;
    comm.allreduce(std::span<T>(whole), ReduceOp::kMean, {.algorithm = algorithm});
    ASSERT_EQ(bits_of(whole), want);
    const std::vector<Piece> cuts = cut(pieces, comm.rank());
    const Buffer buffer{dtype_of<T>(), pieces.size(), cuts};
    comm.engine()
        .start({.what = Collective::kAllReduce,
                .op = ReduceOp::kMean,
                .count = pieces.size(),
                .algorithm = algorithm},
               buffer, buffer)
        .wait();
    ASSERT_EQ(bits_of(pieces), want);
  }
}

template <typename T>
class EqualBits : public ::testing::Test {};
using Floats = ::testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(EqualBits, Floats);

TYPED_TEST(EqualBits, over_links_algorithms_segments_and_cuts_into_pieces) {
  using T = TypeParam;
  const int world = 5;
  const auto in = inputs<T>(world, 2003);
  std::string want;
  spawn_ranks(world, [&](Communicator& comm) {
    std::vector<T> data = in[static_cast<std::size_t>(comm.rank())];
    comm.allreduce(std::span<T>(data), ReduceOp::kMean, {.algorithm = Algorithm::kRing});
    if (comm.rank() == 0) want = bits_of(data);
  });
  const auto check = [&](Communicator& comm) { check_all<T>(comm, in, want); };
  for (const std::size_t segment : {8UL, 56UL, 4096UL, 524288UL}) {
    for (const std::size_t capacity : {7UL, 300UL, 1UL << 20}) {
      if (capacity == 7 && segment == 8) continue;  // the same path as below, only slower
      spawn_ranks(world, check, {.link_capacity_bytes = capacity, .segment_bytes = segment});
    }
    spawn_ranks(world, check, {.link = LocalLink::kTcp, .segment_bytes = segment});
  }
  spawn_ranks(world, check,
              {.link = LocalLink::kShm, .link_capacity_bytes = 300, .segment_bytes = 4096});
}

TYPED_TEST(EqualBits, over_tcp_for_buffers_larger_than_any_socket_holds) {
  using T = TypeParam;
  for (const int world : {2, 3, 5}) {
    for (const std::size_t count : {1000UL, 300007UL}) {
      const auto in = inputs<T>(world, count);
      PerRank<T> over_memory = in, over_tcp = in;
      const auto reduce_into = [](PerRank<T>& out) {
        return [&out](Communicator& comm) {
          comm.allreduce(std::span<T>(out[static_cast<std::size_t>(comm.rank())]), ReduceOp::kMean);
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

/// The values that sums and comparisons treat apart, as bits.
template <typename T>
struct Special {
  using Bits = std::conditional_t<sizeof(T) == 2,
                                  std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  static constexpr int kFraction = std::is_same_v<T, double>    ? 52
                                   : std::is_same_v<T, Float16> ? 10
                                   : sizeof(T) == 4             ? 23
                                                                : 7;
  static constexpr int kAll = 8 * sizeof(T) - 1;  // bits without the sign
  static constexpr Bits kSign = static_cast<Bits>(Bits{1} << kAll);
  static constexpr Bits kInf =
      static_cast<Bits>((((std::uint64_t{1} << (kAll - kFraction)) - 1)) << kFraction);
  static constexpr Bits kNan = static_cast<Bits>(kInf | (Bits{1} << (kFraction - 1)));
  static constexpr Bits kOne =
      static_cast<Bits>((((std::uint64_t{1} << (kAll - kFraction - 1)) - 1)) << kFraction);
};

TYPED_TEST(EqualBits, let_nan_win_and_keep_infinities_and_signed_zeros) {
  using T = TypeParam;
  using S = Special<T>;
  using Bits = typename S::Bits;
  static constexpr Bits kMinus = S::kSign;
  for (const Algorithm algorithm : kOrdered) {
    spawn_ranks(3, [&](Communicator& comm) {
      const bool odd = comm.rank() == 1;
      const auto run = [&](ReduceOp op) {
        std::vector<Bits> bits{odd ? static_cast<Bits>(kMinus | S::kNan | 1) : S::kOne,
                               odd ? S::kInf : static_cast<Bits>(kMinus | S::kInf),
                               odd ? S::kInf : S::kOne, odd ? kMinus : Bits{0}, kMinus};
        std::vector<T> data(bits.size());
        std::memcpy(static_cast<void*>(data.data()), bits.data(), bits.size() * sizeof(T));
        comm.allreduce(std::span<T>(data), op, {.algorithm = algorithm});
        std::memcpy(bits.data(), data.data(), bits.size() * sizeof(T));
        return bits;
      };
      using List = std::vector<Bits>;
      const Bits low = static_cast<Bits>(kMinus | S::kInf);
      EXPECT_EQ(run(ReduceOp::kSum), (List{S::kNan, S::kNan, S::kInf, 0, kMinus}));
      EXPECT_EQ(run(ReduceOp::kMin), (List{S::kNan, low, S::kOne, kMinus, kMinus}));
      EXPECT_EQ(run(ReduceOp::kMax), (List{S::kNan, S::kInf, S::kInf, 0, kMinus}));
    });
  }
}

}  // namespace
}  // namespace paceline
