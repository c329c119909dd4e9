// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/execute.h"

#include <fmt/format.h>

#include <deque>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/sim/arithmetic.h"
#include "paceline/sim/check.h"
#include "paceline/sim/traffic_table.h"

namespace paceline::sim {
namespace {

using plan::Kind;
using plan::Step;

/// A message on its way.
struct Message {
  Range elements;
  Form wire = Form::kT;
  std::vector<std::byte> payload;
};

struct RankState {
  plan::Schedule schedule;
  CallMemory memory;
  std::size_t next = 0;  // step
  [[nodiscard]] bool finished() const { return next == schedule.steps.size(); }
};

/// All ranks in turn, each as far as it can go.
class Run {
 public:
  Run(Algorithm algorithm, const plan::Shape& shape, Dtype dtype, ReduceOp op)
      : world_(shape.world), dtype_(dtype), arithmetic_(dtype, op, shape.world) {
    plan::Shape one = shape;
    for (one.rank = 0; one.rank < world_; ++one.rank) {
      plan::Schedule schedule = plan::make_schedule(algorithm, one);
      CallMemory memory(schedule, one, dtype, {});
      ranks_.push_back({std::move(schedule), std::move(memory)});
    }
  }

  void write_inputs(std::span<const std::span<const std::byte>> inputs);
  void run(const AfterStep& after_step);
  [[nodiscard]] UntypedOutcome outcome();

 private:
  bool advance(int rank, const AfterStep& after_step);
  bool do_step(int rank, const Step& step);
  void send(int rank, const Step& step);
  bool receive(int rank, const Step& step);
  void compute(int rank, const Step& step, std::span<const std::byte> incoming);
  bool posted(int rank, const Step& step) const;
  [[noreturn]] void fail_stuck() const;
  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::deque<Message>& link(int from, int to) {
    return links_[static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)];
  }

  int world_;
  Dtype dtype_;
  Arithmetic arithmetic_;
  std::vector<RankState> ranks_;
  std::unordered_map<std::uint64_t, std::deque<Message>> links_;
  std::set<std::tuple<int, int, int>> flags_;  // (poster, reader, flag)
  TrafficTable traffic_;
};

void Run::write_inputs(std::span<const std::span<const std::byte>> inputs) {
  if (inputs.size() != ranks_.size()) {
    throw UsageError(fmt::format("{} inputs for {} ranks", inputs.size(), ranks_.size()));
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const std::uint64_t bytes = ranks_[r].schedule.in.size() * size_of(dtype_);
    if (bytes == 0) continue;
    if (inputs[r].size() != bytes) {
      throw UsageError(fmt::format("the input of rank {} has {} bytes, its schedule reads {}", r,
                                   inputs[r].size(), bytes));
    }
    ranks_[r].memory.write_in(inputs[r]);
  }
}

void Run::run(const AfterStep& after_step) {
  for (;;) {
    bool moved = false;
    bool finished = true;
    for (int rank = 0; rank < world_; ++rank) {
      moved |= advance(rank, after_step);
      finished &= state(rank).finished();
    }
    if (finished) break;
    if (!moved) fail_stuck();
  }
  for (const auto& [key, messages] : links_) {
    if (!messages.empty()) throw BrokenRule("a message was left over: nobody received it");
  }
}

bool Run::advance(int rank, const AfterStep& after_step) {
  RankState& s = state(rank);
  const std::size_t before = s.next;
  while (!s.finished() && do_step(rank, s.schedule.steps[s.next])) {
    const Step& step = s.schedule.steps[s.next++];
    traffic_.add_windows(step, rank, world_, dtype_);
    if (!after_step) continue;
    const Range all = s.schedule.out;
    if (all.empty()) {
      after_step(rank, step, {});
    } else {
      const Stretch buffer = s.memory.at(plan::Memory::kOut, 0, all.begin);
      after_step(rank, step, {buffer.data, all.size() * size_of(dtype_)});
    }
  }
  return s.next != before;
}

bool Run::do_step(int rank, const Step& step) {
  switch (step.kind) {
    case Kind::kSend: send(rank, step); return true;
    case Kind::kRecv: return receive(rank, step);
    case Kind::kFold: compute(rank, step, {}); return true;
    case Kind::kPost:
      for (int i = 0; i < step.to.size; ++i) {
        flags_.emplace(rank, (step.to.first + i) % world_, step.flag);
      }
      return true;
    case Kind::kAwait: return posted(rank, step);
  }
  return false;
}

void Run::send(int rank, const Step& step) {
  Message message{step.elements, step.wire,
                  arithmetic_.load(step, step.elements, state(rank).memory)};
  traffic_.add(rank, step.peer, 1, step.elements.size(), message.payload.size());
  link(rank, step.peer).push_back(std::move(message));
}

bool Run::receive(int rank, const Step& step) {
  auto& messages = link(step.peer, rank);
  if (messages.empty()) return false;
  const Message message = std::move(messages.front());
  messages.pop_front();
  if (message.elements != step.elements || message.wire != step.wire) {
    throw BrokenRule(fmt::format("rank {}: '{}' meets a message of [{}, {})", rank, describe(step),
                                 message.elements.begin, message.elements.end));
  }
  compute(rank, step, message.payload);
  return true;
}

void Run::compute(int rank, const Step& step, std::span<const std::byte> incoming) {
  arithmetic_.apply(step, rank, step.elements, incoming,
                    [this](int q) -> CallMemory& { return state(q).memory; });
}

bool Run::posted(int rank, const Step& step) const {
  for (int i = 0; i < step.from.size; ++i) {
    if (!flags_.contains({(step.from.first + i) % world_, rank, step.flag})) return false;
  }
  return true;
}

void Run::fail_stuck() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].finished()) continue;
    throw BrokenRule(fmt::format("deadlock: rank {} waits for ever at step {}: {}", r,
                                 ranks_[r].next,
                                 describe(ranks_[r].schedule.steps[ranks_[r].next])));
  }
  throw BrokenRule("deadlock");
}

UntypedOutcome Run::outcome() {
  UntypedOutcome outcome{.results = {}, .links = traffic_.links()};
  for (RankState& rank : ranks_) outcome.results.push_back(rank.memory.read_out());
  return outcome;
}

}  // namespace

UntypedOutcome execute_untyped(Algorithm algorithm,
                               const plan::Shape& shape,
                               Dtype dtype,
                               ReduceOp op,
                               std::span<const std::span<const std::byte>> inputs,
                               const AfterStep& after_step) {
  if (op == ReduceOp::kMean && !is_floating(dtype)) {
    throw UsageError(fmt::format("the mean of {} is undefined: use a sum", name_of(dtype)));
  }
  plan::Shape first = shape;
  first.rank = 0;
  (void)plan::make_schedule(algorithm, first);  // a bad shape is refused here
  Run run(algorithm, shape, dtype, op);
  run.write_inputs(inputs);
  run.run(after_step);
  return run.outcome();
}

}  // namespace paceline::sim
