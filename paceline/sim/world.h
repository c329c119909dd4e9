// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Runs several calls of all ranks at once, in any order that the rules of paceline/plan/schedule.h
/// allow, over links that hold few frames. Private to sim: for tests, and for proving new plans.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "paceline/plan/schedule.h"
#include "paceline/sim/arithmetic.h"
#include "paceline/sim/conflicts.h"
#include "paceline/sim/memory.h"
#include "paceline/sim/random.h"
#include "paceline/sim/traffic_table.h"

namespace paceline::sim {

/// One collective of all ranks.
struct Call {
  Collective what = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  Dtype dtype = Dtype::kF32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::uint64_t count = 0;
  bool windows = false;
  std::vector<bool> resident = {};  ///< per rank; empty: all are
  std::uint32_t slices = 1;
  std::function<plan::Schedule(const plan::Shape&)> plan;  ///< instead of `algorithm`'s
};

/// Who moves next.
enum class Choice : std::uint8_t {
  kRandom,       ///< anybody
  kStarveRanks,  ///< a fixed order of ranks: the last moves only when nobody before it can
  kStarveCalls,  ///< a fixed order per rank and call
  kStarveLanes   ///< a fixed order per rank, call and lane
};

struct WorldOptions {
  std::size_t capacity = 1;      ///< frames that a link holds
  std::uint64_t max_frame = 64;  ///< elements
  Choice choice = Choice::kRandom;
  bool flags_as_frames = true;  ///< else as words that the reader sees at once
  bool overtaking = false;      ///< call k+1 may pass k once the peer has issued k+1
  Rules rules;
  std::uint64_t seed = 1;  ///< of the order, of cuts into frames and pieces, of memory layouts
};

/// All ranks, with the calls in flight that each issues in sequence and awaits in an order of its
/// own.
///
/// Threads  Not thread-safe; it starts none.
class World {
 public:
  /// Errors  UsageError as plan::make_schedule; BrokenRule if sends and receives do not match.
  World(int world, std::vector<Call> calls, const WorldOptions& options);

  /// The elements of the schedule's `in`.
  void set_input(std::size_t call, int rank, std::span<const std::byte> elements);

  /// Errors  BrokenRule at the first rule that is seen broken.
  void run();

  /// The elements of the schedule's `out`, as they were when the rank's wait returned.
  [[nodiscard]] const std::vector<std::byte>& result(std::size_t call, int rank) const;
  [[nodiscard]] std::vector<LinkTraffic> links(std::size_t call) const;
  /// Frames that all links carried.
  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }

 private:
  struct Progress {
    std::uint64_t at = 0;  // the first element not done
    bool done = false;
    std::uint16_t told = 0;     // kPost: ranks told so far
    std::uint16_t message = 0;  // kSend, kRecv: number on its link
  };
  struct Lane {  // steps that go one after the other
    std::vector<std::uint32_t> steps;
    std::size_t next = 0;
    [[nodiscard]] bool finished() const { return next == steps.size(); }
  };
  struct RankCall {
    plan::Schedule schedule;
    std::vector<Progress> progress;
    std::vector<std::vector<std::uint32_t>> blockers;
    std::vector<Lane> out;  // per peer
    std::vector<Lane> in;   // per peer
    std::unique_ptr<CallMemory> memory;
    std::vector<std::byte> input, result;
    std::size_t left = 0;  // steps not done
    bool issued = false;
    bool returned = false;
  };
  struct Frame {
    std::size_t call = 0;
    std::uint16_t message = 0;  // or the flag
    Form wire = Form::kT;
    Range elements;  // not yet taken
    bool is_flag = false;
    std::vector<std::byte> payload;
    std::size_t taken_bytes = 0;
  };
  struct ScriptLine {
    bool wait = false;  // else: issue
    std::size_t call = 0;
  };
  enum class Role : std::uint8_t { kScript, kFlags, kOut, kIn, kLocal };
  struct Actor {
    Role role = Role::kScript;
    int rank = 0;
    std::size_t call = 0;
    std::uint32_t index = 0;  // peer, or step for kLocal
  };
  enum class Moved : std::uint8_t {
    kNo,
    kYes,
    kForGood
  };  // kForGood: nothing is left for this actor

  void make_rank_call(int rank, std::size_t call);
  void make_lanes(int rank, RankCall& c);
  void make_script(int rank);
  void make_actors();
  [[nodiscard]] std::uint64_t priority(const Actor& actor) const;

  [[nodiscard]] Moved move(const Actor& actor);
  [[nodiscard]] Moved move_script(int rank);
  [[nodiscard]] Moved move_flags(int rank, int from);
  [[nodiscard]] Moved move_out(int rank, std::size_t call, int peer);
  [[nodiscard]] Moved move_in(int rank, std::size_t call, int peer);
  [[nodiscard]] Moved move_local(int rank, std::size_t call, std::uint32_t step);
  [[nodiscard]] bool fold(int rank, std::size_t call, std::uint32_t step);
  [[nodiscard]] bool post(int rank, std::size_t call, std::uint32_t step);
  [[nodiscard]] bool await(int rank, std::size_t call, std::uint32_t step);
  void issue(int rank, std::size_t call);
  void finish_call(int rank, std::size_t call);

  void compute(int rank,
               std::size_t call,
               const plan::Step& step,
               Range elements,
               std::span<const std::byte> incoming);
  void advance(int rank, std::size_t call, std::uint32_t step, std::uint64_t count);
  [[nodiscard]] std::uint64_t limit(const RankCall& c, std::uint32_t step) const;
  [[nodiscard]] bool may_leave(int rank, std::size_t call, int peer) const;
  [[nodiscard]] bool posts_before(int rank, std::size_t call, std::uint16_t flag) const;
  void send_frame(int rank, int peer, Frame frame);
  [[nodiscard]] CallMemory& window(int owner, int rank, std::size_t call);

  [[nodiscard]] RankCall& at(int rank, std::size_t call) {
    return rank_calls_[static_cast<std::size_t>(rank)][call];
  }
  [[nodiscard]] const RankCall& at(int rank, std::size_t call) const {
    return rank_calls_[static_cast<std::size_t>(rank)][call];
  }
  [[nodiscard]] std::size_t pair(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(world_) +
           static_cast<std::size_t>(to);
  }
  [[nodiscard]] std::deque<Frame>& link(int from, int to) { return links_[pair(from, to)]; }
  /// Flag words: 1 + the last call whose flag was posted.
  [[nodiscard]] std::size_t& word(int poster, int reader, std::uint16_t flag);
  /// In [1, most], or 0 if most is 0.
  [[nodiscard]] std::uint64_t some(std::uint64_t most) {
    return most == 0 ? 0 : 1 + random_.below(most);
  }

  int world_;
  std::vector<Call> calls_;
  WorldOptions options_;
  Random random_;
  std::vector<std::vector<RankCall>> rank_calls_;  // [rank][call]
  std::vector<std::deque<Frame>> links_;           // [from * world + to]
  std::vector<std::vector<std::size_t>> words_;    // [poster * world + reader][flag]
  std::vector<std::vector<ScriptLine>> scripts_;   // [rank]
  std::vector<std::size_t> script_next_;           // [rank]
  std::vector<Actor> actors_;
  std::vector<Arithmetic> arithmetic_;  // [call]
  std::vector<TrafficTable> traffic_;   // [call]
  std::uint64_t frames_ = 0;
  bool flags_travel_ = false;  // some post leaves as a frame
};

}  // namespace paceline::sim
