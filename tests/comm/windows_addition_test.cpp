// SPDX-License-Identifier: Apache-2.0
// Reduce-scatters that add to their output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <latch>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/paceline.h"
#include "tests/comm/expected.h"
#include "tests/comm/outcomes.h"
#include "tests/comm/windows_support.h"

namespace paceline {
namespace {

using test::bits_of;
using test::inputs;
using test::kMostRanks;
using test::kShm;

constexpr ScaledAdd kHow{.scale = -0.25 / 3, .fused = true};

template <typename T>
std::byte* bytes(T* data) {
  return reinterpret_cast<std::byte*>(data);
}

/// Where a rank's output lies.
enum class Output : std::uint8_t { kPrivate, kOwnWindow, kOnceForAll };

/// Memory of `count` elements for all ranks' outputs; each uses its own shard of it.
template <typename T>
struct Outputs {
  Outputs(Communicator& comm, Output where, std::size_t count) : own(count, T{1}) {
    if (where == Output::kPrivate) return;
    const std::size_t size = std::max<std::size_t>(1, count) * sizeof(T);
    region = where == Output::kOwnWindow ? comm.engine().allocate(size) : comm.share(size);
    if (where == Output::kOwnWindow || comm.rank() == 0) {
      std::fill_n(reinterpret_cast<T*>(region.data.get()), count, T{1});
    }
    comm.barrier();
  }
  [[nodiscard]] T* data() {
    return region.data ? reinterpret_cast<T*>(region.data.get()) : own.data();
  }
  Region region;
  std::vector<T> own;
};

/// In pieces of at most `cut` elements.
template <typename T>
std::vector<Piece> cut_up(T* data, std::size_t count, std::size_t cut) {
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at < count; at += cut) {
    pieces.push_back({bytes(data + at), std::min(cut, count - at) * sizeof(T)});
  }
  return pieces;
}

struct Case {
  ReduceOp op = ReduceOp::kMean;
  Output output = Output::kPrivate;
  bool resident = true;  // the input
  std::size_t cut = 1000;
};

template <typename T>
void expect_the_sum(Communicator& comm, const std::vector<std::vector<T>>& in, const Case& how) {
  const std::vector<T>& from = in[static_cast<std::size_t>(comm.rank())];
  const std::size_t count = from.size();
  const Range shard = comm.shard(count);
  std::vector<T> want = from;
  comm.allreduce(std::span(want), how.op);
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_here = how.output == Output::kOnceForAll || (i >= shard.begin && i < shard.end);
    want[i] = is_here ? std::fma(want[i], static_cast<T>(kHow.scale), T{1}) : T{1};
  }
  Outputs<T> outputs(comm, how.output, count);
  std::vector<T> own = from;
  Region window;
  T* source = own.data();
  if (how.resident && count != 0) {
    window = comm.engine().allocate(count * sizeof(T));
    std::memcpy(window.data.get(), from.data(), count * sizeof(T));
    source = reinterpret_cast<T*>(window.data.get());
  }
  const auto in_pieces = cut_up(source, count, how.cut);
  const auto out_pieces = cut_up(outputs.data() + shard.begin, shard.size(), how.cut + 1);
  const Call call{.what = Collective::kReduceScatter,
                  .op = how.op,
                  .count = count,
                  .algorithm = Algorithm::kDirect,
                  .adds = kHow};
  comm.engine()
      .start(call, {dtype_of<T>(), count, in_pieces}, {dtype_of<T>(), shard.size(), out_pieces})
      .wait();
  comm.barrier();
  EXPECT_TRUE(bits_of(std::vector<T>(outputs.data(), outputs.data() + count)) == bits_of(want));
  EXPECT_TRUE(bits_of(std::vector<T>(source, source + count)) == bits_of(from));
}

template <typename T>
void expect_sums_everywhere(int world, std::size_t count) {
  const auto in = inputs<T>(world, count);
  spawn_ranks(
      world,
      [&](Communicator& comm) {
        for (const Output output : {Output::kPrivate, Output::kOwnWindow, Output::kOnceForAll}) {
          for (const bool resident : {true, false}) {
            expect_the_sum(comm, in, {.output = output, .resident = resident});
          }
          const bool mixed = comm.rank() % 2 == 0;
          expect_the_sum(comm, in,
                         {.op = ReduceOp::kSum, .output = output, .resident = mixed, .cut = 7});
        }
      },
      kShm);
}

TEST(Additions, give_what_was_there_plus_the_scaled_mean_wherever_memory_lies) {
  for (int world = 2; world <= kMostRanks; ++world) {
    for (const std::size_t count : {0U, 1U, 1003U}) expect_sums_everywhere<float>(world, count);
    expect_sums_everywhere<double>(world, 501);
  }
}

TEST(Additions, of_long_buffers_take_many_slices) { expect_sums_everywhere<float>(3, 700'001); }

TEST(Additions, begin_when_the_last_rank_has_come) {
  std::latch seen(1);
  spawn_ranks(
      2,
      [&](Communicator& comm) {
        Outputs<float> outputs(comm, Output::kOnceForAll, 2000);
        if (comm.rank() == 1) seen.wait();
        std::vector<float> in(2000, 4);
        const Range shard = comm.shard(2000);
        const Piece from{bytes(in.data()), 8000};
        const Piece to{bytes(outputs.data() + shard.begin), 4 * shard.size()};
        const Call call{.what = Collective::kReduceScatter,
                        .op = ReduceOp::kMean,
                        .count = 2000,
                        .algorithm = Algorithm::kDirect,
                        .adds = ScaledAdd{.scale = 0.5}};
        Work work = comm.engine().start(call, {Dtype::kF32, 2000, {&from, 1}},
                                        {Dtype::kF32, shard.size(), {&to, 1}});
        for (int turn = 0; comm.rank() == 0 && turn < 1000; ++turn) comm.engine().advance();
        if (comm.rank() == 0) {
          EXPECT_EQ(std::count(outputs.data(), outputs.data() + 2000, 1.0F), 2000);
          seen.count_down();
        }
        work.wait();
        comm.barrier();
        EXPECT_EQ(std::count(outputs.data(), outputs.data() + 2000, 3.0F), 2000);
      },
      kShm);
}

TEST(Additions, take_no_input_from_memory_that_exists_once) {
  std::string told;
  test::outcomes(
      2,
      [&](Communicator& comm) {
        const Region shared = comm.share(8000);
        std::vector<float> out(1000);
        const Piece from{shared.data.get(), 8000}, to{bytes(out.data()), 4000};
        const Call call{.what = Collective::kReduceScatter,
                        .count = 2000,
                        .algorithm = Algorithm::kDirect,
                        .adds = kHow};
        try {
          comm.engine()
              .start(call, {Dtype::kF32, 2000, {&from, 1}}, {Dtype::kF32, 1000, {&to, 1}})
              .wait();
        } catch (const UsageError& error) {
          EXPECT_EQ(comm.rank(), 1);
          told = error.what();
        }
      },
      kShm);
  EXPECT_NE(told.find("its memory belongs to rank 0"), std::string::npos) << told;
}

struct Refusal {
  Collective what = Collective::kReduceScatter;
  Algorithm algorithm = Algorithm::kDirect;
  Dtype dtype = Dtype::kF32;
  std::size_t count = 30;
  bool in_place = false;
  std::string text = "only reduce_scatter of f32 or f64 by direct, of two or more ranks, adds";
};

void start(Communicator& comm, const Refusal& refusal, std::optional<ScaledAdd> adds) {
  std::vector<float> in(refusal.count), out(refusal.count);
  const bool scatters = refusal.what == Collective::kReduceScatter;
  const std::uint64_t results = scatters ? comm.shard(refusal.count).size() : refusal.count;
  const Piece from{bytes(in.data()), 4 * refusal.count};
  const Piece to{bytes(refusal.in_place ? in.data() : out.data()), 4 * results};
  const Call call{
      .what = refusal.what, .count = refusal.count, .algorithm = refusal.algorithm, .adds = adds};
  comm.engine()
      .start(call, {refusal.dtype, refusal.count, {&from, 1}}, {refusal.dtype, results, {&to, 1}})
      .wait();
}

// The rank that has the first element asks for it alone; the others are told.
void expect_refused(const Refusal& refusal) {
  std::string told;
  const auto all = test::outcomes(
      3,
      [&](Communicator& comm) {
        const Range shard = comm.shard(refusal.count);
        if (shard.begin != 0 || shard.empty()) return start(comm, refusal, std::nullopt);
        try {
          start(comm, refusal, kHow);
          ADD_FAILURE() << "it was not refused: " << refusal.text;
        } catch (const UsageError& error) {
          told = error.what();
        }
      },
      kShm);
  EXPECT_NE(told.find(refusal.text), std::string::npos) << told;
  EXPECT_EQ(std::count_if(all.begin(), all.end(),
                          [&](const test::Outcome& one) {
                            return one.failed && one.code == CommErrc::kRefused &&
                                   one.text.find(refusal.text) != std::string::npos;
                          }),
            2);
}

TEST(Additions, are_refused_where_they_cannot_be_and_all_ranks_are_told) {
  expect_refused({.what = Collective::kAllReduce});
  expect_refused({.algorithm = Algorithm::kRing});
  expect_refused({.dtype = Dtype::kI32});
  spawn_ranks(1, [](Communicator& comm) { EXPECT_THROW(start(comm, {}, kHow), UsageError); });
  expect_refused(
      {.count = 1, .in_place = true, .text = "the output that it adds to overlaps its input"});
}

}  // namespace
}  // namespace paceline
