// SPDX-License-Identifier: Apache-2.0
#include "paceline/plan/cost.h"

#include <algorithm>
#include <bit>

#include "paceline/plan/builder.h"

namespace paceline::plan {
namespace {

using Bytes = std::uint64_t;

/// The sizes that a closed form is made of.
struct Sizes {
  const Shape& shape;
  Bytes term;     // bytes of an element as T
  Bytes partial;  // bytes of an element as a partial sum
  [[nodiscard]] Bytes elements() const { return shape.count; }
  [[nodiscard]] Bytes chunk(long c) const {
    return plan::chunk(shape.count, shape.world, c).size();
  }
  [[nodiscard]] Bytes peers() const { return static_cast<Bytes>(shape.world - 1); }
};

// One chunk leaves as plain terms, all others but the own one as partial sums.
Bytes ring_reduce_scatter_bytes(const Sizes& s) {
  const long r = s.shape.rank;
  return s.chunk(r - 1) * s.term + (s.elements() - s.chunk(r) - s.chunk(r - 1)) * s.partial;
}

// Every chunk leaves but the right neighbour's own.
Bytes ring_allgather_bytes(const Sizes& s) {
  return (s.elements() - s.chunk(s.shape.rank + 1L)) * s.term;
}

Bytes pairwise_reduce_scatter_bytes(const Sizes& s) {
  return (s.elements() - s.chunk(s.shape.rank)) * s.term;
}

Bytes pairwise_allgather_bytes(const Sizes& s) {
  return s.peers() * s.chunk(s.shape.rank) * s.term;
}

Bytes one_stage_bytes(const Sizes& s) { return s.peers() * s.elements() * s.term; }

// Windows: one rank reads, or writes, and the other does nothing.
Bytes direct_bytes_written(const Sizes& s) {
  return s.shape.what == Collective::kAllReduce ? s.peers() * s.chunk(s.shape.rank) * s.term : 0;
}

Bytes direct_bytes_read(const Sizes& s) {
  const Bytes own = s.chunk(s.shape.rank);
  switch (s.shape.what) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter: return s.peers() * own * s.term;
    case Collective::kAllGather: return (s.elements() - own) * s.term;
    case Collective::kBroadcast: return s.shape.rank == s.shape.root ? 0 : s.elements() * s.term;
    case Collective::kBarrier: break;
  }
  return 0;
}

Bytes relay_bytes(const Sizes& s) {
  return (s.shape.rank == 0 ? s.peers() : 1) * s.elements() * s.term;
}

// A child per power of two below v's lowest set bit that stays below N.
Bytes tree_bytes(const Sizes& s) {
  const auto world = static_cast<unsigned>(s.shape.world);
  const unsigned v =
      (static_cast<unsigned>(s.shape.rank) + world - static_cast<unsigned>(s.shape.root)) % world;
  const auto reach = static_cast<Bytes>(std::bit_width(world - 1 - v));
  const Bytes children = v == 0 ? reach : std::min(reach, static_cast<Bytes>(std::countr_zero(v)));
  return children * s.elements() * s.term;
}

Bytes ring_bytes(const Sizes& s) {
  const Collective what = s.shape.what;
  return (what == Collective::kAllGather ? 0 : ring_reduce_scatter_bytes(s)) +
         (what == Collective::kReduceScatter ? 0 : ring_allgather_bytes(s));
}

Bytes pairwise_bytes(const Sizes& s) {
  const Collective what = s.shape.what;
  return (what == Collective::kAllGather ? 0 : pairwise_reduce_scatter_bytes(s)) +
         (what == Collective::kReduceScatter ? 0 : pairwise_allgather_bytes(s));
}

}  // namespace

void for_each_transfer(const Step& step,
                       int rank,
                       int world,
                       Dtype dtype,
                       const std::function<void(int, int, std::uint64_t)>& count) {
  const Bytes n = step.elements.size();
  if (step.kind == Kind::kSend) count(rank, step.peer, n * size_of(dtype, step.wire));
  if (step.kind != Kind::kFold && step.kind != Kind::kRecv) return;
  const auto bytes_of = [&](Memory memory) {
    return n * size_of(dtype, memory == Memory::kSum ? Form::kSum : Form::kT);
  };
  for (int i = 0; i < step.from.size && step.src != Memory::kInbox; ++i) {
    const int owner = (step.from.first + i) % world;
    if (owner != rank) count(owner, rank, bytes_of(step.src));
  }
  for (int i = 0; i < step.to.size; ++i) {
    const int owner = (step.to.first + i) % world;
    if (owner != rank) count(rank, owner, bytes_of(step.dst));
  }
}

std::uint64_t bytes_sent(const Schedule& schedule, const Shape& shape, Dtype dtype) {
  Bytes total = 0;
  for (const Step& step : schedule.steps) {
    for_each_transfer(step, shape.rank, shape.world, dtype, [&](int sender, int, Bytes bytes) {
      if (sender == shape.rank) total += bytes;
    });
  }
  return total;
}

std::uint64_t bytes_read(const Schedule& schedule, const Shape& shape, Dtype dtype) {
  Bytes total = 0;
  for (const Step& step : schedule.steps) {
    for_each_transfer(step, shape.rank, shape.world, dtype, [&](int, int receiver, Bytes bytes) {
      if (receiver == shape.rank) total += bytes;
    });
  }
  return total;
}

std::uint64_t formula_bytes_sent(Algorithm algorithm, const Shape& shape, Dtype dtype) {
  check_shape(algorithm, shape);
  if (shape.world == 1 || shape.what == Collective::kBarrier) return 0;
  const Sizes sizes{shape, size_of(dtype, Form::kT), size_of(dtype, Form::kSum)};
  switch (algorithm) {
    case Algorithm::kRing: return ring_bytes(sizes);
    case Algorithm::kPairwise: return pairwise_bytes(sizes);
    case Algorithm::kOneStage: return shape.windows ? 0 : one_stage_bytes(sizes);
    case Algorithm::kTree: return tree_bytes(sizes);
    case Algorithm::kRelay: return relay_bytes(sizes);
    case Algorithm::kDirect: return direct_bytes_written(sizes);
  }
  return 0;
}

std::uint64_t formula_bytes_read(Algorithm algorithm, const Shape& shape, Dtype dtype) {
  check_shape(algorithm, shape);
  if (shape.world == 1) return 0;
  const Sizes sizes{shape, size_of(dtype, Form::kT), size_of(dtype, Form::kSum)};
  if (algorithm == Algorithm::kDirect) return direct_bytes_read(sizes);
  return algorithm == Algorithm::kOneStage && shape.windows ? one_stage_bytes(sizes) : 0;
}

}  // namespace paceline::plan
