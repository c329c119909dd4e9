// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/yardsticks.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "apps/bench/shared_address.h"
#include "paceline/kernel/fold.h"
#include "paceline/net/host.h"

namespace paceline::apps {
namespace {

/// Arguments of the kernel.
struct Fold {
  Dtype dtype = Dtype::kF32;
  std::uint64_t count = 0;
  std::vector<kernel::Term> terms = {};
  std::vector<kernel::Target> targets = {};

  void operator()() const { kernel::fold(dtype, ReduceOp::kSum, 1, count, terms, targets); }
};

/// The ranks' buffers, from the one behind this rank on: the order in which its chunk is summed.
std::vector<std::byte*> in_order(const std::vector<std::byte*>& buffers,
                                 int rank,
                                 std::uint64_t offset) {
  std::vector<std::byte*> result;
  for (std::size_t i = 1; i <= buffers.size(); ++i) {
    result.push_back(buffers[(static_cast<std::size_t>(rank) + i) % buffers.size()] + offset);
  }
  return result;
}

std::vector<kernel::Term> terms_of(const std::vector<std::byte*>& addresses) {
  std::vector<kernel::Term> terms;
  for (const std::byte* const data : addresses) terms.push_back({.data = data});
  return terms;
}

std::vector<kernel::Target> targets_of(const std::vector<std::byte*>& addresses) {
  std::vector<kernel::Target> targets;
  for (std::byte* const data : addresses) targets.push_back({.data = data});
  return targets;
}

/// What `rank` does in the collective, if nobody waits for anybody.
Fold fold_of(Collective what,
             Dtype dtype,
             int rank,
             const Range& chunk,
             const std::vector<std::byte*>& in,
             const std::vector<std::byte*>& out) {
  const auto self = static_cast<std::size_t>(rank);
  const std::uint64_t offset = chunk.begin * size_of(dtype);
  Fold fold{.dtype = dtype, .count = chunk.size()};
  switch (what) {
    case Collective::kAllReduce:
      fold.terms = terms_of(in_order(in, rank, offset));
      fold.targets = targets_of(in_order(out, rank, offset));
      break;
    case Collective::kReduceScatter:
      fold.terms = terms_of(in_order(in, rank, offset));
      fold.targets = targets_of({out[self]});
      break;
    case Collective::kAllGather:
      fold.terms = terms_of({in[self]});
      fold.targets = targets_of(in_order(out, rank, offset));
      break;
    default:  // a broadcast: all but the root copy
      fold.terms = terms_of({out.front()});
      fold.targets = targets_of({out[self]});
  }
  return fold;
}

std::function<void()> roofline_of(Communicator& comm,
                                  const BenchOptions& options,
                                  const Exercise& exercise,
                                  std::uint64_t bytes) {
  if (options.memory == BenchMemory::kPrivate || options.link == BenchLink::kMemory) return {};
  const std::uint64_t count = bytes / size_of(options.dtype);
  const auto in = shared_addresses(comm, options, exercise.in);
  const auto out = shared_addresses(comm, options, exercise.out);
  if (in.empty() || out.empty()) return {};
  std::vector<Fold> shares;
  const int runners = std::min(comm.world_size(), net::usable_cores());
  for (int rank = comm.rank(); comm.rank() < runners && rank < comm.world_size(); rank += runners) {
    const bool whole = *options.what == Collective::kBroadcast;
    if (whole && rank == 0) continue;  // the others fetch it
    const Range part = whole ? Range{0, count} : comm.shard_of(rank, count);
    shares.push_back(fold_of(*options.what, options.dtype, rank, part, in, out));
  }
  return [shares] {
    for (const Fold& share : shares) share();
  };
}

std::function<void()> copy_of(Communicator& comm,
                              const BenchOptions& options,
                              const Exercise& exercise,
                              std::uint64_t bytes) {
  const BenchBuffer from = exercise.in.bytes == bytes ? exercise.in : exercise.out;
  const BenchBuffer to = allocate(comm, options.memory, bytes);
  return [from, to, bytes] { std::memcpy(to.data.get(), from.data.get(), bytes); };
}

}  // namespace

Yardsticks make_yardsticks(Communicator& comm,
                           const BenchOptions& options,
                           const Exercise& exercise,
                           std::uint64_t bytes) {
  if (moves_nothing(options)) return {};
  return {.roofline = roofline_of(comm, options, exercise, bytes),
          .copy = copy_of(comm, options, exercise, bytes)};
}

}  // namespace paceline::apps
