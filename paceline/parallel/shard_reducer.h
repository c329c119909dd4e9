// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Averages the ranks' gradients round by round; each rank gets its share.

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/parallel/gradient_arena.h"
#include "paceline/parallel/gradient_bytes.h"
#include "paceline/parallel/shard_layout.h"
#include "paceline/parallel/shared_parameters.h"

namespace paceline {

/// Reads gradients where they lie and never writes to them. Those that the links cannot take as
/// they are (small, strided, aliased) it copies.
///
/// Threads  One caller at a time.
class ShardReducer {
 public:
  ShardReducer(std::span<const NamedTensor> parameters, Communicator& comm);

  /// Rounds that may be under way together: a rank that is late in one keeps nobody from the next.
  static constexpr std::size_t kUnderWay = 2;

  /// Must be called after each change of the rounds: memory for the largest shards.
  void lay_out(std::span<const Round> rounds);

  /// What is wrong with this rank's gradients; empty if nothing is.
  [[nodiscard]] std::string fault() const;
  /// Reads the gradients as they are now; they stay in use until release().
  void take(const SharedParameters& shared);
  void release();
  /// Those of parameter number `index` in [begin, end) of its elements, flat, as they were taken.
  [[nodiscard]] at::Tensor taken(std::size_t index, Range elements) const;

  /// Where a round's mean goes on this rank.
  struct Addition {
    std::span<const Piece> pieces;  ///< together this rank's shard
    ScaledAdd how;
  };
  /// Begins to average round number `index`; this rank's shard of the mean goes to shard_of(), or
  /// is added elsewhere. Collective.
  void start(std::size_t index,
             const Round& round,
             const std::optional<Addition>& addition,
             const CallOptions& options);
  /// Waits until this rank's shard of the mean has gone where it goes.
  void finish(std::size_t index);
  /// Rounds that cannot be under way together have the same memory.
  [[nodiscard]] at::Tensor shard_of(std::size_t index, const Round& round) const;

  /// Of what was taken last.
  [[nodiscard]] GradientBytes bytes() const noexcept { return bytes_; }
  /// Whether .grad has changed since take().
  [[nodiscard]] bool changed_since_take() const;

  /// Gradients that this thread makes may lie where the links reach them; no longer.
  void serve_here();
  void leave_here();
  /// After a failure, for good. Waits for the rounds under way, or for their failure: they must not
  /// write any more when it is told.
  void close();

 private:
  struct Taken {
    at::Tensor gradient;  // as it was in .grad
    std::uint32_t version = 0;
    at::Tensor values;  // in the order of the parameter's memory
  };
  [[nodiscard]] at::Tensor values_of(std::size_t index,
                                     const at::Tensor& gradient,
                                     const SharedParameters& shared) const;
  [[nodiscard]] GradientBytes count_taken() const;
  void separate_overlaps();
  [[nodiscard]] std::byte* place_of(std::size_t index) const noexcept {
    return shards_.data.get() + index % kUnderWay * shard_bytes_;
  }

  const std::vector<NamedTensor> parameters_;
  Communicator& comm_;
  std::unique_ptr<GradientArena> arena_;  // none at world 1
  std::vector<at::Tensor> homes_;         // of small gradients
  using Kept = std::pair<std::vector<Taken>, Region>;
  std::vector<Taken> taken_;
  std::shared_ptr<const Kept> kept_;  // what calls under way use
  GradientBytes bytes_;
  Region shards_;
  std::size_t shard_bytes_ = 0;  // of one of kUnderWay places in it
  std::array<Work, kUnderWay> work_;
};

}  // namespace paceline
