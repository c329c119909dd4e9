// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The schedule language: what each rank does in a collective, as plain data.
///
/// Three readers share it: comm's executor runs it, sim executes and counts it in memory, the tests
/// prove it. A new algorithm is one pure function and one line of the table in make_schedule.cpp.
///
/// The rules that every reader keeps:
/// 1. Terms are added left to right in the accumulation type. A sum stored as T is finished:
///    divided for kMean, rounded, once. A single T stays as it is. A step reads all terms of an
///    element before it stores any.
/// 2. A step may touch element e once every earlier step of its schedule that conflicts with it at
///    e is past e. Steps conflict if both touch the same local memory and one writes; kIn, kOut and
///    kSum count as one memory, kStage as another, each inbox slot as its own; kPost and kAwait
///    write their range.
///    Steps move in element order; kPost and kAwait are all or nothing.
/// 3. To one peer, messages leave in program order and calls in sequence order. Posts of one flag
///    go strictly in sequence order. Calls in flight share no memory.
/// 4. What a sends to b is what b receives from a, in order, range and wire form. Frames are cut
///    anywhere between elements. An empty message still sends its header; empty folds are left out.
/// 5. A frame of an issued call finds its destination free.
/// 6. A flag word holds the last sequence number posted; as a frame it only stores that word and is
///    taken even before the call is issued. Ranks that share memory read and write each other's
///    windows: a rank's kStage, if its schedule has one, else its kIn and kOut. A window is touched
///    only between its owner's issue and the end of its owner's call, but for a stage that outlives
///    its call: that one is kept until all ranks have ended theirs.

#include <cstdint>
#include <vector>

#include "paceline/base/types.h"

namespace paceline::plan {

enum class Kind : std::uint8_t {
  kSend,  ///< `src` leaves for `peer`
  kRecv,  ///< `dst` of each rank in `to` = incoming (+) `src` of from[0] (+) `src` of from[1] …
  kFold,  ///< the same without incoming; one term is a copy
  kPost,  ///< tells each rank in `to`: this rank's earlier steps on these elements are done
  kAwait  ///< waits until each rank in `from` has posted `flag`
};

enum class Memory : std::uint8_t {
  kNone,
  kIn,     ///< the caller's input, of type T
  kOut,    ///< the caller's output, of type T
  kSum,    ///< partial sums in the accumulation type
  kInbox,  ///< of type T; slot q holds what rank q sent; the own slot is kIn
  kStage   ///< of type T: the window of a rank whose kIn and kOut the others cannot reach
};

/// first, first+1, … (mod world), in this order.
struct Ranks {
  std::uint16_t first = 0;
  std::uint16_t size = 0;
  bool operator==(const Ranks&) const = default;
};

/// One action of one rank.
struct Step {
  Kind kind = Kind::kSend;
  Memory src = Memory::kNone;
  Memory dst = Memory::kNone;
  Form wire = Form::kT;    ///< element form on the link (kSend, kRecv)
  std::uint16_t peer = 0;  ///< kSend, kRecv; also the slot of a receive into kInbox
  std::uint16_t flag = 0;  ///< kPost, kAwait
  Ranks from{};            ///< terms, in order; another rank's is its window (or the inbox)
  Ranks to{};              ///< whose `dst`; another rank's is its window
  Range elements{};
  bool operator==(const Step&) const = default;
};
static_assert(sizeof(Step) == 32);

/// What a schedule is for. Pure numbers: the same on every rank but for `rank`.
struct Shape {
  Collective what = Collective::kAllReduce;
  int rank = 0;
  int world = 1;
  int root = 0;              ///< kBroadcast
  std::uint64_t count = 0;   ///< elements of the whole logical buffer
  int local = 1;             ///< ranks per host, consecutive
  bool windows = false;      ///< do all ranks share memory?
  bool resident = true;      ///< kDirect: do the others reach what they use here? Each rank's own
  std::uint32_t slices = 1;  ///< kDirect: of each chunk; see slices_for()
  bool operator==(const Shape&) const = default;
};

/// Whether ranks write each other's kOut by kDirect. What they read is kIn.
[[nodiscard]] constexpr bool writes_others_output(Collective what) noexcept {
  return what == Collective::kAllReduce;
}

/// How kStage keeps a logical buffer: each chunk in `slices` slices, of which `slots` at a time.
/// Slices of one slot are other elements to rule 2: the schedule has to keep them in order.
struct Staging {
  std::uint32_t slices = 0;  ///< 0: there is no stage
  std::uint32_t slots = 0;   ///< slice p lies in slot p mod slots
  bool outlives = false;     ///< peers may still read it when this rank's call has ended
  bool operator==(const Staging&) const = default;
};

/// One rank's steps, and which elements each memory holds.
struct Schedule {
  std::vector<Step> steps;
  Range in;                   ///< elements the caller's input holds
  Range out;                  ///< elements the caller's output holds
  Range sum;                  ///< elements of kSum
  Range inbox;                ///< elements of each inbox slot
  bool sum_over_out = false;  ///< may kSum lie over kOut (same type, `out` covers `sum`)?
  Staging stage;
  bool windows = false;  ///< its flags are words in shared memory, and never frames
};

/// Chunk c of `count` elements over `world` ranks: nearly equal, the first count % world one
/// longer. `c` is taken mod world, so neighbours need no wrapping.
[[nodiscard]] Range chunk(std::uint64_t count, int world, long c) noexcept;

/// Slice p of `slices` of chunk c: nearly equal, like chunks.
[[nodiscard]] Range slice(
    std::uint64_t count, int world, long c, std::uint32_t p, std::uint32_t slices) noexcept;

/// Slices that a rank which must copy into its window should use: a round of them, one of each
/// chunk, takes about 512 KiB. The same on every rank.
[[nodiscard]] std::uint32_t slices_for(Dtype dtype, int world, std::uint64_t count) noexcept;

/// Where the elements of a logical buffer lie in a stage.
class StageMap {
 public:
  StageMap() = default;
  StageMap(std::uint64_t count, int world, const Staging& staging) noexcept;

  /// Elements that the stage has room for.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  struct Place {
    std::uint64_t index = 0;  ///< in the stage
    std::uint64_t run = 0;    ///< elements from here on that lie side by side
  };
  [[nodiscard]] Place find(std::uint64_t element) const noexcept;

 private:
  std::uint64_t count_ = 0;
  std::uint64_t longest_ = 0;  // slice
  std::uint64_t size_ = 0;
  int world_ = 1;
  Staging staging_;
};

/// The steps of shape.rank.
///
/// Shape   in/out cover [0, count), but reduce_scatter's `out` and allgather's `in` are
///         chunk(rank), broadcast's `in` is empty except on the root, barrier has neither.
/// Cost    Pure; O(steps).
/// Errors  UsageError if rank, world or root is out of range or the algorithm does not do this
///         collective (supports()).
[[nodiscard]] Schedule make_schedule(Algorithm algorithm, const Shape& shape);

/// Whether `algorithm` has a schedule for `what`.
[[nodiscard]] bool supports(Algorithm algorithm, Collective what) noexcept;

/// The compiled-in choice; the same on every rank because it sees only what all ranks share.
[[nodiscard]] Algorithm choose_algorithm(
    Collective what, Dtype dtype, int world, std::uint64_t count, bool windows = false) noexcept;

}  // namespace paceline::plan
