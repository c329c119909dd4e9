// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/call_cursor.h"

#include <algorithm>

#include "paceline/base/assert.h"

namespace paceline {

using plan::Kind;
using plan::Memory;
using plan::Ranks;
using plan::Step;

namespace {

bool holds(Ranks ranks, int rank, int world) {
  return (rank - ranks.first + world) % world < ranks.size;
}

// What a step touches of this rank's memory. kIn, kOut and kSum are one memory, each inbox slot is
// its own; the own slot is kIn.
struct Touch {
  bool reads = false;
  bool writes = false;
  Ranks slots_read;
  int slot_written = -1;
};

Touch touch_of(const Step& step, int rank, int world) {
  Touch touch;
  switch (step.kind) {
    case Kind::kSend: touch.reads = true; break;
    case Kind::kRecv:
    case Kind::kFold:
      if (step.src == Memory::kInbox) touch.slots_read = step.from;
      touch.reads = holds(step.from, rank, world);
      if (step.dst == Memory::kInbox) {
        touch.slot_written = step.peer;
      } else {
        touch.writes = holds(step.to, rank, world);
      }
      break;
    case Kind::kPost:
    case Kind::kAwait: touch.reads = touch.writes = true; break;
  }
  return touch;
}

bool conflict(const Touch& a, const Touch& b, int world) {
  if (a.writes && (b.reads || b.writes)) return true;
  if (a.reads && b.writes) return true;
  if (a.slot_written >= 0) {
    if (a.slot_written == b.slot_written || holds(b.slots_read, a.slot_written, world)) return true;
  }
  return b.slot_written >= 0 && holds(a.slots_read, b.slot_written, world);
}

/// Over windows all steps are this rank's own.
std::size_t lanes_of(const plan::Schedule& schedule, int world) {
  return schedule.windows ? 0 : static_cast<std::size_t>(world);
}

}  // namespace

CallCursor::CallCursor(const plan::Schedule& schedule, int rank, int world)
    : windows_(schedule.windows),
      rank_(rank),
      world_(world),
      out_(lanes_of(schedule, world), kNone),
      in_(out_),
      open_(schedule.steps.size()) {
  steps_.reserve(schedule.steps.size());
  std::vector<std::uint32_t> sent(out_.size()), received(out_.size());
  for (const Step& step : schedule.steps) {
    PACELINE_ASSERT(windows_ || step.kind != Kind::kPost || step.to.size == 1,
                    "a frame to several ranks");
    PACELINE_ASSERT(step.peer < world, "a peer outside the world");
    std::uint32_t message = 0;
    if (step.kind == Kind::kSend) message = sent[step.peer]++;
    if (step.kind == Kind::kRecv) message = received[step.peer]++;
    steps_.push_back({step, step.elements.begin, message, kNone, false});
  }
  for (auto i = static_cast<StepIndex>(steps_.size()); i-- > 0;) {
    StepIndex& lane = lane_of(steps_[i].step);
    steps_[i].next = lane;
    lane = i;
  }
}

CallCursor::StepIndex& CallCursor::lane_of(const Step& step) {
  switch (step.kind) {
    case Kind::kSend: return out_[step.peer];
    case Kind::kPost: return windows_ ? local_ : out_[step.to.first];
    case Kind::kRecv: return in_[step.peer];
    case Kind::kFold:
    case Kind::kAwait: break;
  }
  return local_;
}

std::uint64_t CallCursor::limit(StepIndex i) const {
  const State& mine = steps_[i];
  std::uint64_t limit = mine.step.elements.end;
  if (i == first_open_) return limit;
  const Touch touch = touch_of(mine.step, rank_, world_);
  for (StepIndex j = first_open_; j < i; ++j) {
    const State& earlier = steps_[j];
    if (earlier.done) continue;
    const std::uint64_t begin = std::max(earlier.at, mine.at);
    if (begin >= std::min(earlier.step.elements.end, limit)) continue;
    if (conflict(touch_of(earlier.step, rank_, world_), touch, world_)) limit = begin;
  }
  return limit;
}

void CallCursor::finish(StepIndex i) {
  State& state = steps_[i];
  StepIndex& lane = lane_of(state.step);
  PACELINE_ASSERT(lane == i && !state.done, "a step finished out of order");
  lane = state.next;
  state.at = state.step.elements.end;
  state.done = true;
  --open_;
  while (first_open_ < steps_.size() && steps_[first_open_].done) ++first_open_;
}

const Step* CallCursor::awaiting() const {
  if (local_ == kNone || step(local_).kind != Kind::kAwait) return nullptr;
  return &step(local_);
}

}  // namespace paceline
