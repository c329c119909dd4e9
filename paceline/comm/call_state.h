// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// One call in flight.

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "paceline/base/deadline.h"
#include "paceline/base/ledger.h"
#include "paceline/comm/call_cursor.h"
#include "paceline/comm/call_memory.h"
#include "paceline/comm/descriptor.h"
#include "paceline/comm/window_board.h"

namespace paceline {

/// Everything about a call from start to end. Owned by its Work handles and, while in flight, by
/// the context. What is not constant belongs to whoever drives the context, until `finished` is
/// set.
struct CallState {
  CallState(Descriptor what,
            CallId id,
            int world_size,
            const plan::Schedule& schedule,
            int rank,
            CallMemory call_memory,
            std::chrono::milliseconds limit,
            std::shared_ptr<const void> owner = {},
            std::optional<ScaledAdd> scaled_add = {})
      : descriptor(std::move(what)),
        hash(id.hash),
        sequence(id.sequence),
        world(world_size),
        timeout(limit),
        adds(scaled_add),
        keeps(std::move(owner)),
        memory(std::move(call_memory)),
        cursor(schedule, rank, world_size),
        over_windows(schedule.windows) {
    if (over_windows) windows.resize(static_cast<std::size_t>(world_size));
    for (const plan::Step& step : schedule.steps) {
      if (step.kind == plan::Kind::kPost)
        ++posts_left[static_cast<std::size_t>(WindowBoard::stage_of(step))];
    }
  }

  /// Makes the ledger record this call, which begins now.
  void begin_record();
  /// What the ledger keeps of a call that begin_record() was called for, and that ends now.
  [[nodiscard]] CallRecord end_record();

  /// Where what moves to or from `peer` is counted, and only there.
  [[nodiscard]] Traffic& traffic_with(int peer) {
    return record ? record->peers[static_cast<std::size_t>(peer)].traffic : traffic;
  }
  /// What has moved in all.
  [[nodiscard]] Traffic total_traffic() const;

  // constant after construction
  const Descriptor descriptor;
  const std::uint64_t hash;
  const std::uint64_t sequence;
  const int world;
  const std::chrono::milliseconds timeout;
  const std::optional<ScaledAdd> adds;  ///< how results join kOut; none: they replace it

  std::shared_ptr<const void> keeps;  ///< until the call has ended

  // the driver's
  CallMemory memory;
  CallCursor cursor;
  const bool over_windows;                    ///< it needs no frames
  bool resident = false;                      ///< the peers reach what they need of its memory
  bool opened = false;                        ///< it has its slot of the board
  std::vector<PeerWindow> windows;            ///< [world], as far as peers have posted
  std::array<std::uint32_t, 2> posts_left{};  ///< per stage
  std::shared_ptr<std::byte> stage;           ///< of its own, if it needs one
  std::size_t stage_bytes = 0;
  Traffic traffic;                     ///< with all peers, if no ledger records the call
  std::unique_ptr<CallRecord> record;  ///< its peers are [world] while the call is in flight
  bool moved = true;                   ///< since the driver last looked
  bool published = false;              ///< its standing, in the present stall
  Clock::time_point still_since{};     ///< when it was last seen moving

  // written once by the driver before `finished`
  std::exception_ptr error;
  std::atomic<bool> finished = false;
};

}  // namespace paceline
