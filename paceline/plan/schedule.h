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
///    kSum count as one memory, each inbox slot as its own; kPost and kAwait write their range.
///    Steps move in element order; kPost and kAwait are all or nothing.
/// 3. To one peer, messages leave in program order and calls in sequence order. Posts of one flag
///    go strictly in sequence order. Calls in flight share no memory.
/// 4. What a sends to b is what b receives from a, in order, range and wire form. Frames are cut
///    anywhere between elements. An empty message still sends its header; empty folds are left out.
/// 5. A frame of an issued call finds its destination free.
/// 6. A flag word holds the last sequence number posted; as a frame it only stores that word and is
///    taken even before the call is issued.

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
  kIn,    ///< the caller's input, of type T
  kOut,   ///< the caller's output, of type T
  kSum,   ///< partial sums in the accumulation type
  kInbox  ///< of type T; slot q holds what rank q sent; the own slot is kIn
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
  Ranks from{};  ///< terms, in order; ranks other than this one need windows (or the inbox)
  Ranks to{};    ///< whose `dst`; ranks other than this one need windows
  Range elements{};
  bool operator==(const Step&) const = default;
};
static_assert(sizeof(Step) == 32);

/// What a schedule is for. Pure numbers: the same on every rank but for `rank`.
struct Shape {
  Collective what = Collective::kAllReduce;
  int rank = 0;
  int world = 1;
  int root = 0;             ///< kBroadcast
  std::uint64_t count = 0;  ///< elements of the whole logical buffer
  int local = 1;            ///< ranks per host, consecutive
};

/// One rank's steps, and which elements each memory holds.
struct Schedule {
  std::vector<Step> steps;
  Range in;                   ///< elements the caller's input holds
  Range out;                  ///< elements the caller's output holds
  Range sum;                  ///< elements of kSum
  Range inbox;                ///< elements of each inbox slot
  bool sum_over_out = false;  ///< may kSum lie over kOut (same type, `out` covers `sum`)?
};

/// Chunk c of `count` elements over `world` ranks: nearly equal, the first count % world one
/// longer. `c` is taken mod world, so neighbours need no wrapping.
[[nodiscard]] Range chunk(std::uint64_t count, int world, long c) noexcept;

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
[[nodiscard]] Algorithm choose_algorithm(Collective what,
                                         Dtype dtype,
                                         int world,
                                         std::uint64_t count) noexcept;

}  // namespace paceline::plan
