// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/sharded_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace paceline {
namespace {

at::Tensor part_of(const at::Tensor& flat, const Stretch& stretch) {
  return flat.narrow(0, static_cast<std::int64_t>(stretch.elements.begin),
                     static_cast<std::int64_t>(stretch.elements.size()));
}

at::Tensor part_of_shard(const at::Tensor& shard, const Stretch& stretch) {
  return shard.narrow(0, static_cast<std::int64_t>(stretch.offset),
                      static_cast<std::int64_t>(stretch.elements.size()));
}

Piece whole_piece(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

void broadcast_shard(const Round& round,
                     int owner,
                     const at::Tensor& shard,
                     const std::vector<at::Tensor>& whole,
                     Communicator& comm,
                     const CallOptions& options) {
  std::vector<Piece> pieces;
  std::uint64_t count = 0;
  for (const Stretch& stretch : round.stretches) {
    if (stretch.owner != owner) continue;
    const at::Tensor to = part_of(whole[stretch.parameter], stretch);
    if (comm.rank() == owner) to.copy_(part_of_shard(shard, stretch));
    pieces.push_back(whole_piece(to));
    count += stretch.elements.size();
  }
  if (count == 0) return;
  const Call call{.what = Collective::kBroadcast,
                  .root = owner,
                  .count = count,
                  .label = options.label,
                  .timeout = options.timeout,
                  .progress = Progress::kCaller};
  const Buffer buffer{round.dtype, count, pieces};
  const Buffer nothing{round.dtype, 0, {}};
  comm.engine().start(call, comm.rank() == owner ? buffer : nothing, buffer).wait();
}

}  // namespace

ShardedState::ShardedState(std::span<const Round> rounds,
                           std::span<const NamedTensor> parameters,
                           int rank) {
  for (const Round& round : rounds) {
    std::uint64_t count = 0;
    for (const Stretch& stretch : round.stretches) {
      if (stretch.owner == rank) count += stretch.elements.size();
    }
    const at::Tensor& like = parameters[round.stretches.front().parameter].tensor;
    shards_.push_back(
        at::zeros({static_cast<std::int64_t>(count)}, like.options().requires_grad(false)));
  }
}

std::vector<at::Tensor> ShardedState::gather(std::span<const Round> rounds,
                                             std::span<const NamedTensor> parameters,
                                             Communicator& comm,
                                             const CallOptions& options) const {
  std::vector<at::Tensor> whole;
  for (const auto& [name, tensor] : parameters) {
    whole.push_back(at::empty({tensor.numel()}, tensor.options().requires_grad(false)));
  }
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    for (int owner = 0; owner < comm.world_size(); ++owner) {
      broadcast_shard(rounds[i], owner, shards_[i], whole, comm, options);
    }
  }
  return whole;
}

void ShardedState::adopt(std::span<const Round> rounds,
                         const std::vector<at::Tensor>& whole,
                         int rank) {
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    for (const Stretch& stretch : rounds[i].stretches) {
      if (stretch.owner != rank) continue;
      part_of_shard(shards_[i], stretch).copy_(part_of(whole[stretch.parameter], stretch));
    }
  }
}

}  // namespace paceline
