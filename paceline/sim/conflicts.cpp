// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/conflicts.h"

#include <algorithm>

namespace paceline::sim {
namespace {

using plan::Kind;
using plan::Memory;
using plan::Step;

/// What a step touches in the memory of its own rank. Bits of `reads` and `writes`: kIn, kOut,
/// kSum, kStage.
struct Touch {
  unsigned reads = 0;
  unsigned writes = 0;
  plan::Ranks slots_read;  // of the inbox
  int slot_written = -1;   // of the inbox
};

class Toucher {
 public:
  Toucher(int rank, int world, const Rules& rules) : rank_(rank), world_(world), rules_(rules) {}

  [[nodiscard]] bool has(plan::Ranks ranks, int q) const {
    return (q - ranks.first + world_) % world_ < ranks.size;
  }

  [[nodiscard]] Touch touch(const Step& step) const {
    Touch t;
    switch (step.kind) {
      case Kind::kSend: t.reads = bit(step.src); break;
      case Kind::kRecv:
      case Kind::kFold: touch_operands(step, t); break;
      case Kind::kPost:
      case Kind::kAwait:
        if (rules_.flags_write) t.writes = kAll;
        break;
    }
    return t;
  }

  [[nodiscard]] bool conflict(const Touch& earlier, const Touch& later) const {
    const unsigned after_write = earlier.writes & (later.reads | later.writes);
    const unsigned after_read = earlier.reads & later.writes;
    return after_write != 0 || (rules_.write_after_read && after_read != 0) ||
           slots_conflict(earlier, later);
  }

 private:
  static constexpr unsigned kBuffers = 7;
  static constexpr unsigned kAll = 15;

  [[nodiscard]] unsigned bit(Memory memory) const {
    switch (memory) {
      case Memory::kIn: return rules_.one_memory ? kBuffers : 1;
      case Memory::kOut: return rules_.one_memory ? kBuffers : 2;
      case Memory::kSum: return rules_.one_memory ? kBuffers : 4;
      case Memory::kStage: return 8;
      case Memory::kInbox:
      case Memory::kNone: break;
    }
    return 0;
  }

  void touch_operands(const Step& step, Touch& t) const {
    if (step.src == Memory::kInbox) {
      t.slots_read = step.from;
      if (has(step.from, rank_)) t.reads = bit(Memory::kIn);
    } else if (has(step.from, rank_)) {
      t.reads = bit(step.src);
    }
    if (step.dst == Memory::kInbox) {
      t.slot_written = step.peer;
    } else if (has(step.to, rank_)) {
      t.writes = bit(step.dst);
    }
  }

  [[nodiscard]] bool slots_conflict(const Touch& earlier, const Touch& later) const {
    const auto reads = [&](const Touch& t, int slot) {
      return slot >= 0 && has(t.slots_read, slot);
    };
    return reads(later, earlier.slot_written) ||
           (rules_.write_after_read && reads(earlier, later.slot_written)) ||
           (earlier.slot_written >= 0 && earlier.slot_written == later.slot_written);
  }

  int rank_;
  int world_;
  const Rules& rules_;
};

bool overlap(Range a, Range b) { return std::max(a.begin, b.begin) < std::min(a.end, b.end); }

}  // namespace

std::vector<std::vector<std::uint32_t>> blockers_of(const plan::Schedule& schedule,
                                                    int rank,
                                                    int world,
                                                    const Rules& rules) {
  const Toucher toucher(rank, world, rules);
  std::vector<Touch> touches;
  for (const Step& step : schedule.steps) touches.push_back(toucher.touch(step));
  std::vector<std::vector<std::uint32_t>> blockers(schedule.steps.size());
  for (std::uint32_t later = 0; later < touches.size(); ++later) {
    for (std::uint32_t earlier = 0; earlier < later; ++earlier) {
      const bool apart = !overlap(schedule.steps[earlier].elements, schedule.steps[later].elements);
      if (apart || !toucher.conflict(touches[earlier], touches[later])) continue;
      blockers[later].push_back(earlier);
    }
  }
  return blockers;
}

}  // namespace paceline::sim
