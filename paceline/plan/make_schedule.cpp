// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "paceline/base/error.h"
#include "paceline/plan/builder.h"

namespace paceline::plan {
namespace {

using Part = void (*)(Builder&);

/// What one algorithm can do. An all-reduce without a part of its own is the reduce-scatter's
/// steps, then the all-gather's.
struct Row {
  Part reduce_scatter = nullptr;
  Part allgather = nullptr;
  Part allreduce = nullptr;
  Part broadcast = nullptr;
};

constexpr std::array<Row, 5> kTable{{
    {.reduce_scatter = ring_reduce_scatter, .allgather = ring_allgather},          // kRing
    {.reduce_scatter = pairwise_reduce_scatter, .allgather = pairwise_allgather},  // kPairwise
    {.allreduce = one_stage_allreduce},                                            // kOneStage
    {.broadcast = tree_broadcast},                                                 // kTree
    {.allreduce = relay_allreduce},                                                // kRelay
}};

const Row* row_of(Algorithm algorithm) noexcept {
  const auto i = static_cast<std::size_t>(algorithm);
  return i < kTable.size() ? &kTable[i] : nullptr;
}

void build_allreduce(const Row& row, Builder& b) {
  if (row.allreduce != nullptr) return row.allreduce(b);
  row.reduce_scatter(b);
  row.allgather(b);
}

void build(const Row& row, Collective what, Builder& b) {
  switch (what) {
    case Collective::kAllReduce: return build_allreduce(row, b);
    case Collective::kReduceScatter: return row.reduce_scatter(b);
    case Collective::kAllGather: b.copy(b.chunk(b.rank())); return row.allgather(b);
    case Collective::kBroadcast: return row.broadcast(b);
    case Collective::kBarrier: return dissemination_barrier(b);
  }
}

/// The largest all-reduce that one_stage takes: bytes that one rank sends. Below it, the one
/// message delay of one_stage beats the 2(N-1) of the ring.
constexpr std::uint64_t kOneStageMaxBytesSent = std::uint64_t{32} * 1024;

bool is_small(Dtype dtype, int world, std::uint64_t count) noexcept {
  if (size_of(dtype) == 0) return false;  // no type at all: whoever makes the call says so
  const auto peers = static_cast<std::uint64_t>(std::max(1, world - 1));
  return count <= kOneStageMaxBytesSent / (peers * size_of(dtype));
}

}  // namespace

void check_shape(Algorithm algorithm, const Shape& shape) {
  if (shape.world < 1 || shape.world > kMaxWorldSize) {
    throw UsageError(
        fmt::format("a schedule needs 1 to {} ranks, not {}", kMaxWorldSize, shape.world));
  }
  if (shape.rank < 0 || shape.rank >= shape.world) {
    throw UsageError(fmt::format("rank {} is not in [0, {})", shape.rank, shape.world));
  }
  if (shape.root < 0 || shape.root >= shape.world) {
    throw UsageError(fmt::format("root {} is not in [0, {})", shape.root, shape.world));
  }
  if (!supports(algorithm, shape.what)) {
    throw UsageError(fmt::format("algorithm '{}' has no schedule for {}", name_of(algorithm),
                                 name_of(shape.what)));
  }
}

Range chunk(std::uint64_t count, int world, long c) noexcept {
  const auto n = static_cast<std::uint64_t>(world);
  const long wrapped = c % world;
  const auto k = static_cast<std::uint64_t>(wrapped < 0 ? wrapped + world : wrapped);
  const std::uint64_t each = count / n;
  const std::uint64_t longer = count % n;
  const std::uint64_t begin = k * each + std::min(k, longer);
  return {begin, begin + each + (k < longer ? 1 : 0)};
}

bool supports(Algorithm algorithm, Collective what) noexcept {
  if (what == Collective::kBarrier) return true;
  const Row* row = row_of(algorithm);
  if (row == nullptr) return false;
  switch (what) {
    case Collective::kAllReduce: return row->allreduce != nullptr || row->reduce_scatter != nullptr;
    case Collective::kReduceScatter: return row->reduce_scatter != nullptr;
    case Collective::kAllGather: return row->allgather != nullptr;
    case Collective::kBroadcast: return row->broadcast != nullptr;
    case Collective::kBarrier: return true;
  }
  return false;
}

Schedule make_schedule(Algorithm algorithm, const Shape& shape) {
  check_shape(algorithm, shape);
  Builder b(shape);
  if (shape.what == Collective::kReduceScatter) b.set_out(b.chunk(b.rank()));
  if (shape.what == Collective::kAllGather) b.set_in(b.chunk(b.rank()));
  const bool moves_data = shape.what != Collective::kBarrier;
  if (shape.world == 1 && moves_data) {
    b.copy(b.all());
    return std::move(b).take();
  }
  const bool logarithmic = !moves_data || shape.what == Collective::kBroadcast;
  b.reserve(logarithmic ? 34 : 4 * b.world());
  build(moves_data ? *row_of(algorithm) : Row{}, shape.what, b);
  return std::move(b).take();
}

Algorithm choose_algorithm(Collective what, Dtype dtype, int world, std::uint64_t count) noexcept {
  switch (what) {
    case Collective::kBroadcast:
    case Collective::kBarrier: return Algorithm::kTree;
    case Collective::kAllGather: return Algorithm::kRing;  // it only copies: no wider sums travel
    case Collective::kAllReduce:
      if (is_small(dtype, world, count)) return Algorithm::kOneStage;
      [[fallthrough]];
    case Collective::kReduceScatter: break;
  }
  return accumulation_type(dtype) == dtype ? Algorithm::kRing : Algorithm::kPairwise;
}

}  // namespace paceline::plan
