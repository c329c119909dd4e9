// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/shared_training.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include "paceline/base/error.h"
#include "paceline/parallel/grad_hook.h"

namespace paceline {
namespace {

// Of a round for each rank. Small enough to be in the second-level cache still when it is used; but
// to meet costs the more, the more ranks there are.
constexpr std::uint64_t kShardBytesPerRank = std::uint64_t{256} << 10;
constexpr std::uint64_t kMostShardBytes = std::uint64_t{1} << 20;
// Elements of a cell, if there are several ranks: its parts stay in the cache from one of ATen's
// kernels to the next, which then use one thread.
constexpr std::uint64_t kCell = 32 << 10;

DdpOptions as_ddp_options(const SharedOptions& options) {
  return {.broadcast_buffers = options.broadcast_buffers, .timeout = options.timeout};
}

// Edits of such a tensor leave no trace, and only inference mode may make them.
std::string inference_among(const std::vector<NamedTensor>& parameters) {
  if (c10::InferenceMode::is_enabled()) return "this is inference mode; leave it to train";
  for (const auto& [name, tensor] : parameters) {
    if (tensor.is_inference()) return "parameter " + name + " was made in inference mode; clone it";
  }
  return {};
}

}  // namespace

SharedTraining::SharedTraining(std::string title,
                               std::shared_ptr<::torch::nn::Module> module,
                               Communicator& comm,
                               const SharedOptions& options,
                               GroupRates rates,
                               std::unique_ptr<UpdateRule> rule)
    : title_(std::move(title)),
      comm_(comm),
      timeout_(options.timeout),
      module_(std::move(module), comm, as_ddp_options(options), {title_, "shared", "step"}),
      trainable_(module_.trainable()),
      rule_(std::move(rule)),
      groups_(rates, options.groups, trainable_) {
  agree();
  require_shared_memory();
  const std::vector<NamedTensor> all = module_.named_parameters();
  shared_ = std::make_unique<SharedParameters>(all, comm_, calls("parameters"));
  for (const auto& one : trainable_) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const NamedTensor& other) {
      return other.tensor.is_same(one.tensor);
    });
    place_.push_back(static_cast<std::size_t>(found - all.begin()));
    shapes_.push_back({dtype_of(one.tensor.scalar_type()).value(), one.tensor.nbytes()});
  }
  try {
    furnish();
  } catch (const std::exception& error) {  // no memory, say: the others would wait for this rank
    abort_for(error);
    throw;
  }
}

void SharedTraining::furnish() {
  reducer_ = std::make_unique<ShardReducer>(trainable_, comm_);
  std::vector<std::size_t> order(trainable_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  const DdpOptions caps;
  lay_out(assign_buckets(shapes_, order, {caps.first_bucket_cap_bytes, caps.bucket_cap_bytes}));
  if (comm_.world_size() > 2) watch_arrival();
  reducer_->serve_here();
}

SharedTraining::~SharedTraining() {
  if (reducer_) reducer_->leave_here();
}

void SharedTraining::agree() {
  Fingerprint traits = rule_->traits();
  traits.insert(traits.begin(), {"the optimizer", title_});
  for (const Trait& trait : groups_.traits()) traits.push_back(trait);
  std::string fault = groups_.fault().empty() ? rule_->fault() : groups_.fault();
  if (fault.empty()) fault = shared_storage_among(module_.named_parameters());
  if (fault.empty()) fault = inference_among(module_.named_parameters());
  module_.agree(traits, fault);
}

void SharedTraining::require_shared_memory() const {
  if (comm_.world_size() == 1 || comm_.engine().shares_memory()) return;
  const std::string why = comm_.link_reason().empty() ? "" : " (" + comm_.link_reason() + ")";
  throw UsageError(title_ + ": these ranks share no memory, they are joined by " + comm_.link() +
                   why + "; use DistributedDataParallel and an optimizer of LibTorch");
}

CallOptions SharedTraining::calls(const std::string& what) const {
  return {.label = module_.name() + " " + what, .timeout = timeout_};
}

// With one or two ranks a sum has the same bits in any order, and so in any layout.
void SharedTraining::watch_arrival() {
  arrival_ = std::make_shared<Arrival>();
  for (std::size_t i = 0; i < trainable_.size(); ++i) {
    const auto note = [arrival = std::weak_ptr<Arrival>(arrival_), i](const auto&...) {
      const auto list = arrival.lock();
      if (!list) return;
      list->erase(std::remove(list->begin(), list->end(), i), list->end());
      list->push_back(i);
    };
    hooks_.push_back(on_gradient_ready(trainable_[i].tensor, note));
  }
}

void SharedTraining::lay_out(const BucketLayout& layout) {
  layout_ = layout;
  const auto world = static_cast<std::uint64_t>(comm_.world_size());
  const std::uint64_t shard_bytes =  // a rank alone meets nobody, and its cells are its shards
      world == 1 ? kMostShardBytes : std::min(world * kShardBytesPerRank, kMostShardBytes);
  rounds_ = make_rounds(shapes_, layout_, comm_, shard_bytes);
  // What backward has left last is read first: the caches still have some of it.
  std::reverse(rounds_.begin(), rounds_.end());
  states_.clear();
  for (std::size_t i = 0; i < rule_->state_names().size(); ++i) {
    states_.emplace_back(rounds_, trainable_, comm_.rank());
  }
  reducer_->lay_out(rounds_);
  make_cells();
}

void SharedTraining::make_cells() {
  const at::NoGradGuard no_grad;
  cells_.clear();
  shards_.clear();
  parameter_pieces_.clear();
  for (std::size_t round = 0; round < rounds_.size(); ++round) {
    shards_.push_back(reducer_->shard_of(round, rounds_[round]));
    cells_.push_back(cells_of(round));
    parameter_pieces_.push_back(parameter_pieces_of(round));
  }
}

std::vector<Piece> SharedTraining::parameter_pieces_of(std::size_t round) const {
  std::vector<Piece> pieces;
  const std::size_t size = size_of(rounds_[round].dtype);
  for (const Stretch& stretch : rounds_[round].stretches) {
    if (stretch.owner != comm_.rank()) continue;
    const at::Tensor& flat = shared_->flat(place_[stretch.parameter]);
    auto* const data = static_cast<std::byte*>(flat.mutable_data_ptr());
    pieces.push_back({data + stretch.elements.begin * size, stretch.elements.size() * size});
  }
  return pieces;
}

std::vector<Cell> SharedTraining::cells_of(std::size_t round) const {
  std::vector<Cell> cells;
  for (const Stretch& stretch : rounds_[round].stretches) {
    if (stretch.owner != comm_.rank()) continue;
    const std::uint64_t count = stretch.elements.size();
    // A rank alone makes views of its gradients anew in each step: the fewer, the better.
    const std::uint64_t most = comm_.world_size() == 1 ? count : kCell;
    for (std::uint64_t done = 0; done < count; done += most) {
      cells.push_back(cell_of(round, stretch, {done, std::min(done + most, count)}));
    }
  }
  return cells;
}

Cell SharedTraining::cell_of(std::size_t round, const Stretch& stretch, Range part) const {
  const auto part_of = [&part](const at::Tensor& flat, std::uint64_t begin) {
    return flat.narrow(0, static_cast<std::int64_t>(begin + part.begin),
                       static_cast<std::int64_t>(part.size()));
  };
  const std::uint64_t begin = stretch.elements.begin;
  Cell cell{.parameter = part_of(shared_->flat(place_[stretch.parameter]), begin),
            .scratch = part_of(shards_[round], stretch.offset),
            .state = {},
            .group = groups_.of(stretch.parameter),
            .parameter_index = stretch.parameter,
            .elements = {begin + part.begin, begin + part.end}};
  for (const ShardedState& state : states_) {
    cell.state.push_back(part_of(state.shard(round), stretch.offset));
  }
  return cell;
}

// As the Reducer does: after the first step buckets hold what comes together.
void SharedTraining::follow_arrival() {
  hooks_.clear();
  const std::shared_ptr<Arrival> arrival = std::exchange(arrival_, nullptr);
  for (std::size_t i = 0; i < trainable_.size(); ++i) {  // set by hand, not by backward
    if (std::find(arrival->begin(), arrival->end(), i) == arrival->end()) arrival->push_back(i);
  }
  std::vector<std::int64_t> order(arrival->begin(), arrival->end());
  comm_.broadcast(std::span(order), 0, calls("layout"));
  const std::vector<std::size_t> agreed(order.begin(), order.end());
  const DdpOptions caps;
  const BucketLayout layout =
      assign_buckets(shapes_, agreed, {caps.first_bucket_cap_bytes, caps.bucket_cap_bytes});
  if (layout == layout_) return;
  std::vector<std::vector<at::Tensor>> whole;
  for (const ShardedState& state : states_) {
    whole.push_back(state.gather(rounds_, trainable_, comm_, calls("state")));
  }
  lay_out(layout);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    states_[i].adopt(rounds_, whole[i], comm_.rank());
  }
}

void SharedTraining::write_once(const std::function<void()>& edit) {
  std::exception_ptr failure;
  guarded([&] {
    comm_.barrier(calls("write_once"));
    std::string strangers;
    std::array<std::int64_t, 1> failed{};
    if (comm_.rank() == 0) {
      try {
        edit();
      } catch (...) {
        failure = std::current_exception();
      }
      strangers = shared_->bring_home(SharedParameters::Values::kOfParameters);
      failed[0] = failure || !strangers.empty() ? 1 : 0;
    }
    comm_.broadcast(std::span<std::int64_t>(failed), 0, calls("write_once"));
    shared_->bring_home(SharedParameters::Values::kOfMemory);
    shared_->accept();
    module_.broadcast_buffers();
    if (failure || failed[0] == 0) return;
    const std::string why = strangers.empty() ? "it failed on rank 0"
                                              : "the type or shape changed of " + strangers +
                                                    "; their values stay as they were";
    throw UsageError(title_ + ": write_once: " + why);
  });
  if (failure) std::rethrow_exception(failure);
}

void SharedTraining::set_rates(std::size_t group, GroupRates rates) {
  groups_.set(group, rates);
  rates_agreed_ = false;
}

std::size_t SharedTraining::state_bytes() const {
  std::size_t bytes = 0;
  for (const ShardedState& state : states_) {
    for (std::size_t round = 0; round < rounds_.size(); ++round) {
      bytes += state.shard(round).nbytes();
    }
  }
  return bytes;
}

// What is made meanwhile is no gradient, and must not take the place of one in the arena.
void SharedTraining::guarded(const std::function<void()>& action) const {
  if (!home_.is_here()) {  // before a forked child writes to anything
    throw UsageError(title_ + ": this process was forked from the one that made it, whose memory " +
                     "the parameters may be; use it there, or make it after the fork");
  }
  reducer_->leave_here();
  try {
    if (c10::InferenceMode::is_enabled()) {
      module_.refuse("called in inference mode; leave it to train");
    }
    action();
  } catch (const UsageError&) {  // nothing has been sent, or all ranks have it
    reducer_->serve_here();
    throw;
  } catch (const CommError&) {
    close();
    throw;
  } catch (const std::exception& error) {  // no memory, say: the others wait for this rank
    abort_for(error);
    close();
    throw;
  }
  reducer_->serve_here();
}

// What a failed step has changed is no edit of the user's, and graphs from before it are stale.
void SharedTraining::close() const {
  reducer_->close();
  shared_->accept();
}

void SharedTraining::abort_for(const std::exception& error) const {
  comm_.abort("rank " + std::to_string(comm_.rank()) + ": " + title_ + ": " + first_line(error));
}

std::string first_line(const std::exception& error) {
  const std::string_view text(error.what());
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace paceline
