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

constexpr std::array<Row, 6> kTable{{
    {.reduce_scatter = ring_reduce_scatter, .allgather = ring_allgather},          // kRing
    {.reduce_scatter = pairwise_reduce_scatter, .allgather = pairwise_allgather},  // kPairwise
    {.allreduce = one_stage_allreduce},                                            // kOneStage
    {.broadcast = tree_broadcast},                                                 // kTree
    {.allreduce = relay_allreduce},                                                // kRelay
    {.reduce_scatter = direct_reduce_scatter,                                      // kDirect
     .allgather = direct_allgather,
     .allreduce = direct_allreduce,
     .broadcast = direct_broadcast},
}};

// Which of `parts` nearly equal parts of `count` holds `element`.
long part_of(std::uint64_t count, std::uint64_t parts, std::uint64_t element) noexcept {
  const std::uint64_t each = count / parts;
  const std::uint64_t in_longer = count % parts * (each + 1);
  if (element < in_longer) return static_cast<long>(element / (each + 1));
  return static_cast<long>(count % parts + (element - in_longer) / each);
}

const Row* row_of(Algorithm algorithm) noexcept {
  const auto i = static_cast<std::size_t>(algorithm);
  return i < kTable.size() ? &kTable[i] : nullptr;
}

void build_allreduce(const Row& row, Builder& b) {
  if (row.allreduce != nullptr) return row.allreduce(b);
  row.reduce_scatter(b);
  row.allgather(b);
}

bool uses_windows(Algorithm algorithm, const Shape& shape) noexcept {
  if (algorithm == Algorithm::kDirect) return true;
  return algorithm == Algorithm::kOneStage && shape.windows && shape.what == Collective::kAllReduce;
}

void build(Algorithm algorithm, const Shape& shape, Builder& b) {
  const bool moves_data = shape.what != Collective::kBarrier;
  const Row& row = moves_data ? *row_of(algorithm) : kTable.front();
  switch (shape.what) {
    case Collective::kAllReduce:
      if (algorithm == Algorithm::kOneStage && shape.windows) return one_stage_window_allreduce(b);
      return build_allreduce(row, b);
    case Collective::kReduceScatter: return row.reduce_scatter(b);
    case Collective::kAllGather: b.copy(b.chunk(b.rank())); return row.allgather(b);
    case Collective::kBroadcast: return row.broadcast(b);
    case Collective::kBarrier:
      return algorithm == Algorithm::kDirect ? direct_barrier(b) : dissemination_barrier(b);
  }
}

/// The largest all-reduce that one_stage takes: bytes that one rank sends. Below it, the one
/// message delay of one_stage beats the 2(N-1) of the ring.
constexpr std::uint64_t kOneStageMaxBytesSent = std::uint64_t{32} * 1024;

/// The same where ranks share memory: bytes of the buffer. All are read by all, so it is less.
constexpr std::uint64_t kOneStageMaxWindow = std::uint64_t{8} * 1024;

/// A round of slices: what a rank copies at a time into its window. Small enough that it is still in
/// the second-level cache when it is folded, large enough that waiting does not show.
constexpr std::uint64_t kRoundBytes = std::uint64_t{512} * 1024;
constexpr std::uint64_t kMinSliceBytes = std::uint64_t{16} * 1024;
/// Two flags per slice are counted in 16 bits.
constexpr std::uint64_t kMaxSlices = 32767;

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
  if (shape.slices < 1 || shape.slices > kMaxSlices) {
    throw UsageError(fmt::format("a chunk has 1 to {} slices, not {}", kMaxSlices, shape.slices));
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

Range slice(
    std::uint64_t count, int world, long c, std::uint32_t p, std::uint32_t slices) noexcept {
  const Range whole = chunk(count, world, c);
  const Range part = chunk(whole.size(), static_cast<int>(slices), p);
  return {whole.begin + part.begin, whole.begin + part.end};
}

std::uint32_t slices_for(Dtype dtype, int world, std::uint64_t count) noexcept {
  const auto n = static_cast<std::uint64_t>(world);
  const std::uint64_t round = std::max(kRoundBytes, n * kMinSliceBytes);
  const std::uint64_t elements =
      std::max<std::uint64_t>(1, round / std::max<std::size_t>(1, size_of(dtype)));
  const std::uint64_t rounds = count / elements + (count % elements == 0 ? 0 : 1);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rounds, 1, kMaxSlices));
}

StageMap::StageMap(std::uint64_t count, int world, const Staging& staging) noexcept
    : count_(count), world_(world), staging_(staging) {
  if (staging.slices == 0) return;
  longest_ = slice(count, world, 0, 0, staging.slices).size();
  size_ = staging.slots >= staging.slices
              ? count
              : longest_ * static_cast<std::uint64_t>(world) * staging.slots;
}

StageMap::Place StageMap::find(std::uint64_t element) const noexcept {
  if (staging_.slots >= staging_.slices) return {element, count_ - element};
  const long c = part_of(count_, static_cast<std::uint64_t>(world_), element);
  const Range whole = chunk(count_, world_, c);
  const auto p =
      static_cast<std::uint32_t>(part_of(whole.size(), staging_.slices, element - whole.begin));
  const Range part = slice(count_, world_, c, p, staging_.slices);
  const std::uint64_t first =
      (static_cast<std::uint64_t>(p % staging_.slots) * static_cast<std::uint64_t>(world_) +
       static_cast<std::uint64_t>(c)) *
      longest_;
  return {first + element - part.begin, part.end - element};
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
  b.reserve(logarithmic || algorithm == Algorithm::kDirect ? 34 : 4 * b.world());
  build(algorithm, shape, b);
  if (uses_windows(algorithm, shape)) b.set_windows();
  return std::move(b).take();
}

Algorithm choose_algorithm(
    Collective what, Dtype dtype, int world, std::uint64_t count, bool windows) noexcept {
  if (windows) {
    const bool small = what == Collective::kAllReduce && size_of(dtype) != 0 &&
                       count <= kOneStageMaxWindow / size_of(dtype);
    return small ? Algorithm::kOneStage : Algorithm::kDirect;
  }
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
