// SPDX-License-Identifier: Apache-2.0
// How a call begins: it is checked, and gets its place in the sequence, its plan and its memory.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/comm/context.h"
#include "paceline/plan/schedule.h"

namespace paceline {
namespace {

// What is wrong with a call by its descriptor alone; empty if nothing is. Ranks whose descriptors
// agree see the same.
std::string fault_of(const Descriptor& call, int world, bool windows) {
  if (size_of(call.dtype) == 0) {
    return fmt::format("{}: {} is no element type", name_of(call.what),
                       static_cast<int>(call.dtype));
  }
  if (reduces(call.what) && call.op > ReduceOp::kMax) {
    return fmt::format("{}: {} is no reduction", name_of(call.what), static_cast<int>(call.op));
  }
  if (reduces(call.what) && call.op == ReduceOp::kMean && !is_floating(call.dtype)) {
    return fmt::format("{} of {}: mean is defined for floats only; use sum and divide",
                       name_of(call.what), name_of(call.dtype));
  }
  if (call.what == Collective::kBroadcast && (call.root < 0 || call.root >= world)) {
    return fmt::format("broadcast: root {} is no rank; ranks are 0 to {}", call.root, world - 1);
  }
  if (!plan::supports(call.algorithm, call.what)) {
    return fmt::format("{} cannot be done by {}", name_of(call.what), name_of(call.algorithm));
  }
  if (call.algorithm == Algorithm::kDirect && world > 1 && !windows) {
    return fmt::format("{} cannot be done by direct: the ranks share no memory",
                       name_of(call.what));
  }
  return {};
}

bool lies_in(std::span<const std::byte> memory, const Buffer& buffer) {
  return std::all_of(buffer.pieces.begin(), buffer.pieces.end(), [&](const Piece& piece) {
    const auto offset = reinterpret_cast<std::uintptr_t>(piece.data) -
                        reinterpret_cast<std::uintptr_t>(memory.data());
    return piece.bytes == 0 || (offset <= memory.size() && piece.bytes <= memory.size() - offset);
  });
}

// Only there is each element of the output stored once, and by its owner.
void check_addition(const Descriptor& call, int world, const CallMemory& memory) {
  if (world == 1 || call.what != Collective::kReduceScatter ||
      call.algorithm != Algorithm::kDirect ||
      (call.dtype != Dtype::kF32 && call.dtype != Dtype::kF64)) {
    throw UsageError(
        "only reduce_scatter of f32 or f64 by direct, of two or more ranks, adds to its output");
  }
  if (memory.in().overlaps(memory.out())) {
    throw UsageError("the output that it adds to overlaps its input");
  }
}

}  // namespace

Algorithm Context::algorithm_for(Collective what, Dtype dtype, std::uint64_t count) const noexcept {
  if (algorithm_ && plan::supports(*algorithm_, what)) return *algorithm_;
  return plan::choose_algorithm(what, dtype, world_, count, windows_ != nullptr);
}

Descriptor Context::describe(const Call& call, const Buffer& in) const {
  return {.what = call.what,
          .algorithm = call.algorithm.value_or(algorithm_for(call.what, in.dtype, call.count)),
          .op = reduces(call.what) ? call.op : ReduceOp::kSum,
          .dtype = in.dtype,
          .root = call.what == Collective::kBroadcast ? call.root : 0,
          .count = call.count,
          .label = call.label};
}

Context::CallPtr Context::issue(const Call& call, const Buffer& in, const Buffer& out) {
  require_not_forked();
  const Descriptor descriptor = describe(call, in);
  const std::string fault = fault_of(descriptor, world_, windows_ != nullptr);
  std::string refusal;
  std::exception_ptr broken;
  CallId id;
  {
    const MutexLock lock(mutex_);
    throw_if_closed(descriptor);
    id = issued_.add(descriptor);
    // The place is used up, so ranks that do the same stay in step; one that does it alone holds
    // another descriptor there than its peers, and all learn of that.
    if (!fault.empty()) throw UsageError(fault);
    try {
      CallPtr state = build(call, descriptor, id, in, out);
      if (ledger_.on()) state->begin_record();
      open_.reserve(open_.size() + 1);
      intake_.push_back(state);
      open_.push_back(state);
      intake_pending_.store(true, std::memory_order_release);
      return state;
    } catch (const UsageError& error) {
      refusal = error.what();
      told_ = true;
    } catch (const std::exception& error) {
      refusal = error.what();
      broken = std::current_exception();
    }
  }
  refuse(descriptor, id.sequence, refusal, broken);
}

// Only this rank can see what is wrong: the others must not wait for it. `broken` is set if the
// call failed for another reason than bad input, such as a lack of memory.
void Context::refuse(const Descriptor& descriptor,
                     std::uint64_t sequence,
                     const std::string& why,
                     const std::exception_ptr& broken) {
  const std::string text =
      fmt::format("rank {} refused call #{} ({}): {}", rank_, sequence, text_of(descriptor), why);
  report({.code = broken ? CommErrc::kAborted : CommErrc::kRefused,
          .rank = rank_,
          .peer = rank_,
          .from_sequence = sequence,
          .text = text});
  if (broken) std::rethrow_exception(broken);
  throw UsageError(text);
}

Context::CallPtr Context::build(const Call& call,
                                const Descriptor& descriptor,
                                CallId id,
                                const Buffer& in,
                                const Buffer& out) {
  if (call.timeout <= std::chrono::milliseconds(0)) {
    throw UsageError(fmt::format("a timeout of {} ms; it must be positive", call.timeout.count()));
  }
  if (in.dtype != out.dtype) {
    throw UsageError(
        fmt::format("its input is {}, its output {}", name_of(in.dtype), name_of(out.dtype)));
  }
  const plan::Shape shape = shape_of(descriptor, in, out);
  const plan::Schedule& schedule = schedule_for(descriptor.algorithm, shape);
  CallMemory memory(schedule, rank_, world_, descriptor.dtype, descriptor.count,
                    PieceList(in, schedule.in), PieceList(out, schedule.out));
  if (call.adds) check_addition(descriptor, world_, memory);
  check_windows(memory.in(), 0);
  check_windows(memory.out(), call.adds ? 1 : 0);  // memory of share() is rank 0's
  for (const CallPtr& other : open_) {
    if (memory.overlaps(other->memory)) {
      throw UsageError(fmt::format("its memory belongs to call #{} ({}), which is still in flight",
                                   other->sequence, text_of(other->descriptor)));
    }
  }
  auto state = std::make_shared<CallState>(descriptor, id, world_, schedule, rank_,
                                           std::move(memory), call.timeout, call.keeps, call.adds);
  state->resident = shape.resident;
  return state;
}

const plan::Schedule& Context::schedule_for(Algorithm algorithm, const plan::Shape& shape) {
  if (!planned_ || planned_->algorithm != algorithm || planned_->shape != shape) {
    planned_ = {algorithm, shape, plan::make_schedule(algorithm, shape)};
  }
  return planned_->schedule;
}

plan::Shape Context::shape_of(const Descriptor& descriptor,
                              const Buffer& in,
                              const Buffer& out) const {
  plan::Shape shape{.what = descriptor.what,
                    .rank = rank_,
                    .world = world_,
                    .root = descriptor.root,
                    .count = descriptor.count,
                    .windows = windows_ != nullptr};
  if (windows_ == nullptr) return shape;
  const std::span<const std::byte> own = windows_->segment(rank_);
  shape.resident =
      lies_in(own, in) && (!plan::writes_others_output(descriptor.what) || lies_in(own, out));
  shape.slices = plan::slices_for(descriptor.dtype, world_, descriptor.count);
  return shape;
}

// Another rank's memory may be anything at any time.
void Context::check_windows(const PieceList& pieces, int first_peer) const {
  for (int peer = first_peer; windows_ != nullptr && peer < world_; ++peer) {
    if (peer == rank_) continue;
    const std::span<const std::byte> segment = windows_->segment(peer);
    if (!pieces.touches(segment)) continue;
    throw UsageError(fmt::format("its memory belongs to rank {}; use memory of this rank", peer));
  }
}

// The first call that meets the cause fails with the cause's own code, later ones quote it.
void Context::throw_if_closed(const Descriptor& descriptor) {
  if (stopped_) throw CommError(CommErrc::kAborted, rank_, -1, "the communicator was destroyed");
  if (!cause_ || cause_->from_sequence > issued_.next()) return;
  if (open_.empty() && fabric_) fabric_->close();  // this rank owes nobody anything any more
  const CommErrc code = std::exchange(told_, true) ? CommErrc::kAborted : cause_->code;
  throw CommError(code, rank_, cause_->peer,
                  fmt::format("rank {}: {} cannot start, this communicator is closed: {}; build a "
                              "new one",
                              rank_, text_of(descriptor), cause_->text));
}

}  // namespace paceline
