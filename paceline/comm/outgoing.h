// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The sending half of the link to one peer: cuts messages into frames and keeps the order.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "paceline/comm/call_state.h"
#include "paceline/comm/frame.h"
#include "paceline/link/link.h"

namespace paceline {

/// What every frame of a context carries.
struct FrameTag {
  std::uint32_t communicator = 0;
  std::uint32_t generation = 0;
};

/// Calls in flight, in sequence order.
using CallList = std::vector<std::shared_ptr<CallState>>;

class Outgoing {
 public:
  Outgoing(int peer, link::Link& link, FrameTag tag, std::size_t segment_bytes);

  /// Sends what may leave now and fits: messages in program order, calls in sequence order.
  /// @return whether anything moved.
  /// Errors  PeerLost.
  [[nodiscard]] bool move(const CallList& calls);

  /// Whether a frame waits for room on the link.
  [[nodiscard]] bool blocked() const { return call_ != nullptr; }
  /// Drops a frame of a call that has failed; the link is of no use afterwards.
  void forget(const CallState& call) {
    if (call_ == &call) call_ = nullptr;
  }

 private:
  [[nodiscard]] bool begin_frame(const CallList& calls);
  [[nodiscard]] bool begin_data(CallState& call, CallCursor::StepIndex step);
  [[nodiscard]] bool push();
  void fill_parts();
  void took(std::size_t bytes);
  void end_frame();

  int peer_;
  link::Link& link_;
  FrameTag tag_;
  std::size_t segment_bytes_;

  // the frame that is on its way; none if call_ is null
  CallState* call_ = nullptr;
  CallCursor::StepIndex step_ = CallCursor::kNone;
  FrameBytes header_{};
  std::size_t header_sent_ = 0;
  std::size_t element_bytes_ = 1;
  std::uint64_t first_ = 0;  // element
  std::size_t payload_bytes_ = 0;
  std::size_t payload_sent_ = 0;
  std::vector<std::span<const std::byte>> parts_;
};

}  // namespace paceline
