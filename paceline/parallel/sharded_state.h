// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// One rank's share of what an optimizer remembers, and the whole of it where it is needed.

#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/parallel/shard_layout.h"
#include "paceline/parallel/tensor_io.h"

namespace paceline {

/// One quantity of all elements, such as "exp_avg".
///
/// Threads  One caller at a time.
class ShardedState {
 public:
  /// All zero.
  ShardedState(std::span<const Round> rounds, std::span<const NamedTensor> parameters, int rank);

  /// This rank's shard of a round, flat.
  [[nodiscard]] const at::Tensor& shard(std::size_t round) const { return shards_[round]; }

  /// All elements of each parameter, flat, on every rank.
  ///
  /// Order   Collective.
  /// Cost    One broadcast per rank and round.
  [[nodiscard]] std::vector<at::Tensor> gather(std::span<const Round> rounds,
                                               std::span<const NamedTensor> parameters,
                                               Communicator& comm,
                                               const CallOptions& options) const;

  /// Takes this rank's share of what gather() made. Sends nothing.
  void adopt(std::span<const Round> rounds, const std::vector<at::Tensor>& whole, int rank);

 private:
  std::vector<at::Tensor> shards_;
};

}  // namespace paceline
