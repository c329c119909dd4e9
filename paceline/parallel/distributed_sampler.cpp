// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/distributed_sampler.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <torch/serialize/archive.h>
#include <torch/types.h>

#include "paceline/base/checked_cast.h"
#include "paceline/base/error.h"
#include "paceline/parallel/sampler_order.h"

namespace paceline {
namespace {

constexpr const char* kKey = "paceline_sampler_state";
constexpr std::int64_t kFields = 7;

Tail tail_of(const SamplerOptions& options) {
  if (options.uneven) return Tail::kKeep;
  return options.drop_last ? Tail::kDrop : Tail::kPad;
}

void validate(int rank, int world, const SamplerOptions& options) {
  if (world < 1) {
    throw UsageError("DistributedSampler: world size " + std::to_string(world) +
                     " is not at least 1");
  }
  if (rank < 0 || rank >= world) {
    throw UsageError("DistributedSampler: rank " + std::to_string(rank) + " is not in [0, " +
                     std::to_string(world) + ")");
  }
  if (options.drop_last && options.uneven) {
    throw UsageError(
        "DistributedSampler: drop_last leaves samples out, uneven leaves none out: choose one");
  }
}

void require_same(const char* field, std::uint64_t here, std::uint64_t there) {
  if (here == there) return;
  throw UsageError("DistributedSampler::restore: " + std::string(field) + " is " +
                   std::to_string(here) + " here but " + std::to_string(there) + " in the state");
}

}  // namespace

struct DistributedSampler::Shared {
  std::uint64_t size;
  int rank;
  int world;
  SamplerOptions options;
  std::uint64_t epoch = 0;       // of the next pass
  std::uint64_t resume_at = 0;   // consumed by earlier runs of `epoch`
  std::uint64_t pass_epoch = 0;  // the fields from here on belong to the pass that has begun
  bool begun = false;
  Pass pass;
  std::vector<std::uint64_t> order;        // empty: 0, 1, …
  std::uint64_t yielded = 0;               // samples of this rank
  std::vector<std::uint64_t> asked_until;  // per batch: samples of this rank asked for so far

  void begin() {
    pass = Pass{size, std::min(resume_at, size), rank, world, tail_of(options)};
    pass_epoch = epoch;
    order.clear();
    if (options.shuffle) order = shuffled_order(size, options.seed, epoch);
    yielded = 0;
    asked_until.clear();
    begun = true;
  }

  [[nodiscard]] SamplerState state_at(std::uint64_t consumed, std::uint64_t at_epoch) const {
    return {.size = size,
            .seed = options.seed,
            .epoch = at_epoch,
            .consumed = consumed,
            .shuffle = options.shuffle,
            .drop_last = options.drop_last,
            .uneven = options.uneven};
  }
};

DistributedSampler::DistributedSampler(std::size_t size,
                                       int rank,
                                       int world,
                                       SamplerOptions options) {
  validate(rank, world, options);
  shared_ = std::make_shared<Shared>();
  shared_->size = size;
  shared_->rank = rank;
  shared_->world = world;
  shared_->options = options;
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  if (epoch < 0) {
    throw UsageError("DistributedSampler::set_epoch: " + std::to_string(epoch) + " is negative");
  }
  const auto chosen = static_cast<std::uint64_t>(epoch);
  if (chosen != shared_->epoch) shared_->resume_at = 0;
  shared_->epoch = chosen;
}

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  Shared& shared = *shared_;
  if (new_size && *new_size != shared.size) {
    shared.size = *new_size;
    shared.resume_at = 0;
  }
  // What was resumed is resumed once: a second pass of the same epoch is a whole one.
  if (shared.begun && shared.pass_epoch == shared.epoch) shared.resume_at = 0;
  shared.begun = false;
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  Shared& shared = *shared_;
  if (batch_size == 0) throw UsageError("DistributedSampler::next: a batch size of 0");
  if (!shared.begun) shared.begin();
  const std::uint64_t left = shared.pass.count() - shared.yielded;
  if (left == 0) return std::nullopt;
  const std::uint64_t before = shared.asked_until.empty() ? 0 : shared.asked_until.back();
  const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - before;
  shared.asked_until.push_back(before + std::min<std::uint64_t>(batch_size, room));
  std::vector<std::size_t> batch(std::min<std::uint64_t>(batch_size, left));
  for (auto& sample : batch) {
    const std::uint64_t position = shared.pass.position(shared.yielded++);
    sample = shared.order.empty() ? position : shared.order[position];
  }
  return batch;
}

std::size_t DistributedSampler::size() const {
  const Shared& shared = *shared_;
  return Pass{shared.size, 0, shared.rank, shared.world, tail_of(shared.options)}.count();
}

SamplerState DistributedSampler::state(std::size_t batches_done) const {
  const Shared& shared = *shared_;
  if (!shared.begun && batches_done == 0) return shared.state_at(shared.resume_at, shared.epoch);
  if (batches_done == 0) return shared.state_at(shared.pass.base, shared.pass_epoch);
  if (batches_done <= shared.asked_until.size()) {
    const std::uint64_t samples = shared.asked_until[batches_done - 1];
    return shared.state_at(shared.pass.consumed(samples), shared.pass_epoch);
  }
  if (shared.begun && shared.yielded == shared.pass.count()) {
    return shared.state_at(shared.size, shared.pass_epoch);  // others may have a batch more
  }
  throw UsageError("DistributedSampler::state: " + std::to_string(batches_done) +
                   " batches are done, but only " + std::to_string(shared.asked_until.size()) +
                   " were handed out");
}

void DistributedSampler::restore(const SamplerState& state) {
  Shared& shared = *shared_;
  require_same("the dataset's size", shared.size, state.size);
  require_same("seed", shared.options.seed, state.seed);
  require_same("shuffle", shared.options.shuffle, state.shuffle);
  require_same("drop_last", shared.options.drop_last, state.drop_last);
  require_same("uneven", shared.options.uneven, state.uneven);
  if (state.consumed > state.size) {
    throw UsageError("DistributedSampler::restore: the state has consumed more than there is");
  }
  shared.epoch = state.epoch;
  shared.resume_at = state.consumed;
  shared.begun = false;
  shared.asked_until.clear();
}

void DistributedSampler::save(::torch::serialize::OutputArchive& archive) const {
  paceline::save(archive, state(shared_->asked_until.size()));
}

void DistributedSampler::load(::torch::serialize::InputArchive& archive) {
  restore(load_sampler_state(archive));
}

void save(::torch::serialize::OutputArchive& archive, const SamplerState& state) {
  auto fields = ::torch::empty({kFields}, ::torch::kInt64);
  auto* field = fields.mutable_data_ptr<std::int64_t>();
  for (const std::uint64_t value :
       {state.size, state.seed, state.epoch, state.consumed, std::uint64_t{state.shuffle},
        std::uint64_t{state.drop_last}, std::uint64_t{state.uneven}}) {
    *field++ = static_cast<std::int64_t>(value);
  }
  archive.write(kKey, fields, /*is_buffer=*/true);
}

SamplerState load_sampler_state(::torch::serialize::InputArchive& archive) {
  ::torch::Tensor fields;
  if (!archive.try_read(kKey, fields, /*is_buffer=*/true) || fields.numel() != kFields ||
      fields.scalar_type() != ::torch::kInt64) {
    throw UsageError("load_sampler_state: the archive holds no state of a DistributedSampler");
  }
  fields = fields.contiguous();
  const auto* field = fields.const_data_ptr<std::int64_t>();
  const auto at = [&](int i) { return static_cast<std::uint64_t>(field[i]); };
  return {.size = at(0),
          .seed = at(1),
          .epoch = at(2),
          .consumed = at(3),
          .shuffle = at(4) != 0,
          .drop_last = at(5) != 0,
          .uneven = at(6) != 0};
}

}  // namespace paceline
