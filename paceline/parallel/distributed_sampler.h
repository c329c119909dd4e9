// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Each rank reads its own share of a dataset, in an order that all ranks know.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/data/samplers/base.h>

namespace paceline {

/// How a dataset is shared out. The same on every rank.
struct SamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool drop_last = false;  ///< leave out the last samples that do not divide by the world size
  bool uneven = false;     ///< neither pad nor drop: for evaluation, each sample exactly once
};

/// How far all ranks together have come. It says nothing about a rank or a world size, so that it
/// can be restored on any number of ranks.
struct SamplerState {
  std::uint64_t size = 0;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t consumed = 0;  ///< leading positions of the epoch's order that were used up
  bool shuffle = false;
  bool drop_last = false;
  bool uneven = false;
  bool operator==(const SamplerState&) const = default;
};

/// Yields the samples of one rank: positions rank, rank + world, … of the epoch's order, which is
/// 0, 1, … or its shuffle.
///
/// The order is padded by repeating it from its start until it divides by `world` (PyTorch's
/// formula), or cut with drop_last, or left uneven. A handle: copies share their state, so that
/// set_epoch() also acts on the copy that a data loader holds.
///
/// Numerics  The shuffle is Fisher-Yates on xoshiro256** keyed by a hash of (seed, epoch): the same
///           on every platform and for every world size; not PyTorch's permutation.
/// Cost      8 bytes per sample of the whole dataset if shuffled, computed once per pass.
/// Errors    UsageError if world < 1, rank is not in [0, world), or drop_last and uneven are both
///           on.
/// Threads   One caller at a time, counted over all copies.
class DistributedSampler final : public ::torch::data::samplers::Sampler<> {
 public:
  DistributedSampler(std::size_t size, int rank, int world, SamplerOptions options = {});

  /// Chooses the order of the next pass; of this one too if it has not yet yielded anything.
  ///
  /// Errors  UsageError if `epoch` is negative.
  void set_epoch(std::int64_t epoch);

  /// Begins a new pass, as a data loader does on begin(); with a new length of the dataset if
  /// given.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;

  /// At most `batch_size` further samples of this rank; nothing once the pass is over.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Samples of this rank in a whole pass.
  [[nodiscard]] std::size_t size() const;

  /// The state once the first `batches_done` batches of this pass were used. A loader asks ahead,
  /// so only its user knows that number. Equal on all ranks that ask for the same batch sizes.
  ///
  /// Errors  UsageError if fewer batches were handed out and the pass is not over.
  [[nodiscard]] SamplerState state(std::size_t batches_done) const;

  /// Goes on where `state` was taken, on any number of ranks: the next pass, until one with another
  /// epoch is chosen, yields the samples not yet consumed, each once (padding apart).
  ///
  /// Errors  UsageError if the dataset's size or an option differs from the state's.
  void restore(const SamplerState& state);

  /// Saves the state after all batches that were handed out; for a loader that asks ahead, take
  /// state() and write it with the functions below.
  void save(::torch::serialize::OutputArchive& archive) const override;
  void load(::torch::serialize::InputArchive& archive) override;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

void save(::torch::serialize::OutputArchive& archive, const SamplerState& state);

/// Errors  UsageError if the archive holds no valid sampler state.
[[nodiscard]] SamplerState load_sampler_state(::torch::serialize::InputArchive& archive);

}  // namespace paceline
