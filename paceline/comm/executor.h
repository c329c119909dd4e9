// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Moves the calls in flight over the links: a state machine that never blocks.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "paceline/comm/incoming.h"
#include "paceline/comm/outgoing.h"
#include "paceline/comm/window_board.h"
#include "paceline/link/link.h"

namespace paceline {

/// Owns the cursors of calls in flight. Whoever drives the context calls it.
///
/// Threads  One at a time.
class Executor {
 public:
  /// `fabric` may be null at world 1.
  Executor(int rank,
           int world,
           link::Fabric* fabric,
           FrameTag tag,
           std::size_t segment_bytes,
           const CallHistory& history);

  /// Takes a call; its sequence number is the highest so far.
  void add(std::shared_ptr<CallState> call);

  /// kWindows leaves the links alone, which tell of peers that have gone; not if needs_links().
  enum class Reach : std::uint8_t { kAll, kWindows };
  /// Moves what can move.
  /// @return whether anything did.
  /// Errors  PeerLost, DescriptorDiffers, ProtocolBroken; of kWindows DescriptorDiffers alone.
  [[nodiscard]] bool advance(Reach reach);
  /// Whether a call in flight moves frames.
  [[nodiscard]] bool needs_links() const;

  /// Takes the calls that are done out of flight.
  [[nodiscard]] std::vector<std::shared_ptr<CallState>> take_done();
  /// Takes calls from sequence number `from` on out of flight, unfinished.
  [[nodiscard]] std::vector<std::shared_ptr<CallState>> take_from(std::uint64_t from);

  [[nodiscard]] const CallList& in_flight() const { return calls_; }
  /// Whether a call in flight cannot go on before `peer` sends or takes something.
  [[nodiscard]] bool waits_for(int peer) const;
  /// Grows while anything of `peer` arrives.
  [[nodiscard]] std::uint64_t bytes_from(int peer) const;
  /// What a waiter should wait for.
  [[nodiscard]] std::vector<link::Interest> interests() const;

 private:
  [[nodiscard]] bool receive(int peer);
  [[nodiscard]] bool advance_local();
  [[nodiscard]] bool advance_local(CallState& call);
  [[nodiscard]] bool do_local(CallState& call, CallCursor::StepIndex index);
  [[nodiscard]] bool fold(CallState& call, CallCursor::StepIndex index);
  [[nodiscard]] bool all_posted(const CallState& call, const plan::Step& step) const;
  void count_posts(CallState& call, const plan::Step& step) const;
  void release(const CallState& call);

  // executor_windows.cpp: calls over shared memory
  [[nodiscard]] bool open(CallState& call);
  [[nodiscard]] bool post(CallState& call, const plan::Step& step);
  [[nodiscard]] bool all_posted_in_windows(CallState& call, const plan::Step& step);
  void count_windows(CallState& call, const plan::Step& step, std::uint64_t count) const;
  void close(const std::vector<std::shared_ptr<CallState>>& done);
  [[nodiscard]] std::optional<link::Interest> awaited_post(const CallState& call, int peer) const;
  [[nodiscard]] bool lacks_post(const CallState& call, int peer) const;
  [[nodiscard]] bool lacks_post_of(int peer) const;
  void add_window_interests(std::vector<link::Interest>& all) const;

  int rank_;
  int world_;
  Folder folder_;
  const CallHistory& history_;
  std::vector<std::unique_ptr<Outgoing>> out_;  // [world]; the own entry is null
  std::vector<std::unique_ptr<Incoming>> in_;
  std::unique_ptr<WindowBoard> board_;  // null where the links have no windows
  CallList calls_;
  std::uint64_t next_ = 0;  // behind the last call that came
  ScratchPool scratch_;
};

}  // namespace paceline
