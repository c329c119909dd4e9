// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The receiving half of the link to one peer: takes frames, and puts or folds their payload where
/// the schedule wants it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "paceline/comm/fold_step.h"
#include "paceline/comm/frame.h"
#include "paceline/comm/outgoing.h"
#include "paceline/link/link.h"

namespace paceline {

/// Answers "what was the descriptor hash of call n?" for calls that have been issued; 0: not known
/// any more; nothing: not issued yet.
class CallHistory {
 public:
  CallHistory() = default;
  CallHistory(const CallHistory&) = delete;
  CallHistory& operator=(const CallHistory&) = delete;
  virtual ~CallHistory() = default;
  [[nodiscard]] virtual std::optional<std::uint64_t> issued_hash(std::uint64_t sequence) const = 0;
};

class Incoming {
 public:
  Incoming(int peer, link::Link& link, FrameTag tag, Folder& folder);

  /// Takes what has come, as long as a call in flight expects something of this peer, or waits for
  /// it in shared memory: `watched`. Then the end of the link is seen too.
  /// @return whether anything moved.
  /// Errors  PeerLost, DescriptorDiffers, ProtocolBroken.
  [[nodiscard]] bool move(const CallList& calls, const CallHistory& history, bool watched);

  /// Whether a call in flight waits for bytes of this peer, and reading on may help.
  [[nodiscard]] bool wanted(const CallList& calls) const;

  /// Posts of `flag` that are still remembered.
  [[nodiscard]] std::size_t posts_kept(std::uint16_t flag) const {
    return flag < flags_.size() ? flags_[flag].size() : 0;
  }
  /// Bytes of this peer that have been used so far.
  [[nodiscard]] std::uint64_t bytes_taken() const noexcept { return taken_; }

  /// Lets go of a call that has failed; the link is of no use afterwards.
  void forget(const CallState& call) {
    if (call_ == &call) call_ = nullptr;
  }

  /// Whether the peer has posted `flag` for call `sequence`.
  /// Errors  DescriptorDiffers if it has, but for another call.
  [[nodiscard]] bool posted(const CallState& call, std::uint16_t flag) const;

 private:
  struct Post {
    std::uint64_t sequence;  // of the call
    std::uint64_t descriptor;
  };
  enum class Turn : std::uint8_t { kMoved, kStuck };
  [[nodiscard]] bool expecting(const CallList& calls) const;
  [[nodiscard]] bool awaiting(const CallState& call) const;
  [[nodiscard]] const Post* post_for(const CallState& call, std::uint16_t flag) const;
  [[nodiscard]] Turn turn(const CallList& calls, const CallHistory& history);
  [[nodiscard]] bool read_header();
  void store_flag(const CallList& calls);
  [[nodiscard]] bool bind(const CallList& calls, const CallHistory& history);
  void check_against_history(const CallList& calls, const CallHistory& history) const;
  void check_against_step() const;
  [[nodiscard]] bool take_payload();
  [[nodiscard]] std::size_t take_in_place();
  [[nodiscard]] std::size_t take_and_fold();
  void end_frame();
  [[nodiscard]] std::size_t take(std::span<std::byte> into);

  int peer_;
  link::Link& link_;
  FrameTag tag_;
  Folder& folder_;
  std::vector<std::deque<Post>> flags_;  // [flag]: in order, from the oldest call in flight on

  // bytes read beyond what was asked for: small frames need one read
  std::array<std::byte, 8192> ahead_{};
  std::size_t ahead_begin_ = 0, ahead_end_ = 0;
  std::uint64_t taken_ = 0;

  // the frame that is arriving
  FrameBytes raw_{};
  std::size_t header_got_ = 0;
  FrameHeader header_;
  bool blocked_ = false;       // its call is not issued yet
  CallState* call_ = nullptr;  // once the header is matched
  CallCursor::StepIndex step_ = CallCursor::kNone;
  std::size_t element_bytes_ = 1;
  std::size_t payload_got_ = 0;
  std::vector<std::byte> scratch_;  // of a folding receive
  std::size_t scratch_got_ = 0;
};

}  // namespace paceline
