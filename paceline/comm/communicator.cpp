// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/communicator.h"

#include <array>
#include <cstring>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/comm/context.h"
#include "paceline/plan/cost.h"

namespace paceline {

Communicator::Communicator(std::shared_ptr<Context> context) noexcept
    : context_(std::move(context)) {}
Communicator::Communicator(Communicator&&) noexcept = default;

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this != &other) {
    if (context_) context_->shut_down();
    context_ = std::move(other.context_);
  }
  return *this;
}

Communicator::~Communicator() {
  if (context_) context_->shut_down();
}

Context& Communicator::context() const {
  if (!context_) throw UsageError("this communicator was moved from");
  return *context_;
}

int Communicator::rank() const { return context().rank(); }
int Communicator::world_size() const { return context().world(); }
std::string Communicator::link() const { return context().link(); }
std::string Communicator::link_reason() const { return context().link_reason(); }
Engine& Communicator::engine() {
  context().require_not_forked();
  return context();
}
std::shared_ptr<Engine> Communicator::share_engine() { return context().shared_from_this(); }

Work Communicator::start(Collective what,
                         ReduceOp op,
                         Dtype dtype,
                         std::uint64_t count,
                         const void* in,
                         std::size_t in_count,
                         void* out,
                         std::size_t out_count,
                         const CallOptions& options,
                         Progress progress) {
  const std::size_t bytes = size_of(dtype);
  // The engine never writes to `in` unless it is `out` too.
  const Piece in_piece{static_cast<std::byte*>(const_cast<void*>(in)), in_count * bytes};
  const Piece out_piece{static_cast<std::byte*>(out), out_count * bytes};
  const Call call{.what = what,
                  .op = op,
                  .count = count,
                  .label = options.label,
                  .algorithm = options.algorithm,
                  .timeout = options.timeout,
                  .progress = progress};
  return context().start(call, {dtype, in_count, {&in_piece, 1}},
                         {dtype, out_count, {&out_piece, 1}});
}

Work Communicator::start_in_place(Collective what,
                                  ReduceOp op,
                                  int root,
                                  Dtype dtype,
                                  void* data,
                                  std::size_t count,
                                  const CallOptions& options,
                                  Progress progress) {
  const Piece piece{static_cast<std::byte*>(data), count * size_of(dtype)};
  const Call call{.what = what,
                  .op = op,
                  .root = root,
                  .count = count,
                  .label = options.label,
                  .algorithm = options.algorithm,
                  .timeout = options.timeout,
                  .progress = progress};
  const Buffer buffer{dtype, count, {&piece, 1}};
  const bool no_input = what == Collective::kBroadcast && root != rank();
  return context().start(call, no_input ? Buffer{dtype, 0, {}} : buffer, buffer);
}

void Communicator::barrier(const CallOptions& options) {
  start(Collective::kBarrier, ReduceOp::kSum, Dtype::kU8, 0, nullptr, 0, nullptr, 0, options,
        Progress::kCaller)
      .wait();
}

Work Communicator::barrier_async(const CallOptions& options) {
  return start(Collective::kBarrier, ReduceOp::kSum, Dtype::kU8, 0, nullptr, 0, nullptr, 0, options,
               Progress::kThread);
}

Range Communicator::shard(std::uint64_t count) const { return shard_of(rank(), count); }

Range Communicator::shard_of(int rank, std::uint64_t count) const {
  return plan::chunk(count, world_size(), rank);
}

Region Communicator::share(std::size_t bytes, const CallOptions& options) {
  Context& engine = context();
  if (world_size() == 1) {
    Region alone = engine.allocate(bytes);
    std::memset(alone.data.get(), 0, bytes);
    return alone;
  }
  if (!engine.shares_memory()) {
    throw UsageError("share() needs ranks that share memory: " + engine.link_reason());
  }
  std::array<std::int64_t, 2> place{};  // 1 if there is one, and where it begins
  Region own;
  std::string why;
  if (rank() == 0) {
    try {
      own = engine.allocate(bytes);
      std::memset(own.data.get(), 0, bytes);
      place = {1, static_cast<std::int64_t>(engine.offset_of(own))};
    } catch (const UsageError& none) {
      why = none.what();
    }
  }
  CallOptions call = options;
  if (call.label.empty()) call.label = "shared memory";
  broadcast(std::span<std::int64_t>(place), 0, call);
  if (place[0] == 0) {
    throw UsageError(rank() == 0 ? why : "rank 0 has no room for the memory that all would share");
  }
  return engine.shared_region(std::move(own), static_cast<std::uint64_t>(place[1]), bytes);
}

void Communicator::abort(const std::string& reason) { context().abort(reason); }

Algorithm Communicator::algorithm_for(Collective what, Dtype dtype, std::uint64_t count) const {
  return context().algorithm_for(what, dtype, count);
}

std::uint64_t Communicator::formula_bytes_sent(Collective what,
                                               Dtype dtype,
                                               std::uint64_t count,
                                               std::optional<Algorithm> algorithm,
                                               int root) const {
  return plan::formula_bytes_sent(algorithm.value_or(algorithm_for(what, dtype, count)),
                                  {.what = what,
                                   .rank = rank(),
                                   .world = world_size(),
                                   .root = root,
                                   .count = count,
                                   .windows = context().shares_memory()},
                                  dtype);
}

std::uint64_t Communicator::formula_bytes_moved(Collective what,
                                                Dtype dtype,
                                                std::uint64_t count) const {
  const plan::Shape shape{.what = what,
                          .rank = rank(),
                          .world = world_size(),
                          .count = count,
                          .windows = context().shares_memory()};
  const Algorithm algorithm = algorithm_for(what, dtype, count);
  return plan::formula_bytes_sent(algorithm, shape, dtype) +
         plan::formula_bytes_read(algorithm, shape, dtype);
}

std::uint64_t Communicator::next_user_number() { return context().next_user_number(); }
std::map<std::string, Traffic> Communicator::traffic() const { return context().traffic(); }
void Communicator::start_ledger(std::size_t capacity) { context().start_ledger(capacity); }
Ledger Communicator::take_ledger() { return context().take_ledger(); }

}  // namespace paceline
