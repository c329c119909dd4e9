// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/outgoing.h"

#include <algorithm>

#include "paceline/base/assert.h"
#include "paceline/comm/link_error.h"

namespace paceline {

using plan::Kind;

Outgoing::Outgoing(int peer, link::Link& link, FrameTag tag, std::size_t segment_bytes)
    : peer_(peer), link_(link), tag_(tag), segment_bytes_(segment_bytes) {}

bool Outgoing::move(const CallList& calls) {
  constexpr int kFramesPerTurn = 4;  // then the other directions get their turn
  bool moved = false;
  try {
    for (int i = 0; i < kFramesPerTurn; ++i) {
      if (call_ == nullptr && !begin_frame(calls)) break;
      const std::size_t before = header_sent_ + payload_sent_;
      const bool complete = push();
      moved = moved || complete || header_sent_ + payload_sent_ != before;
      if (!complete) break;
    }
  } catch (const link::LinkClosed& closed) {
    throw PeerLost(peer_, closed.what());
  }
  return moved;
}

bool Outgoing::begin_frame(const CallList& calls) {
  for (const auto& call : calls) {
    const auto step = call->cursor.first_out(peer_);
    if (step == CallCursor::kNone) continue;  // this call has sent all to this peer
    return begin_data(*call, step);           // the next call must wait for it
  }
  return false;
}

bool Outgoing::begin_data(CallState& call, CallCursor::StepIndex index) {
  const CallCursor& cursor = call.cursor;
  const plan::Step& step = cursor.step(index);
  const bool is_flag = step.kind == Kind::kPost;
  const std::uint64_t at = cursor.at(index);
  element_bytes_ = size_of(call.descriptor.dtype, step.wire);
  const std::uint64_t segment = std::max<std::uint64_t>(1, segment_bytes_ / element_bytes_);
  const std::uint64_t left = step.elements.end - at;
  const std::uint64_t count = is_flag ? left : std::min(segment, left);
  if (cursor.limit(index) < at + count) return false;

  call_ = &call;
  step_ = index;
  first_ = at;
  payload_bytes_ = is_flag ? 0 : static_cast<std::size_t>(count) * element_bytes_;
  header_sent_ = payload_sent_ = 0;
  header_ = encode({.type = is_flag ? FrameType::kFlag : FrameType::kData,
                    .wire = step.wire,
                    .communicator = tag_.communicator,
                    .generation = tag_.generation,
                    .sequence = call.sequence,
                    .message = is_flag ? step.flag : cursor.message(index),
                    .length_bytes = static_cast<std::uint32_t>(payload_bytes_),
                    .offset = at,
                    .descriptor = call.hash});
  return true;
}

bool Outgoing::push() {
  fill_parts();
  std::size_t offered = 0;
  for (const auto& part : parts_) offered += part.size();
  const std::size_t taken = link_.try_send(parts_);
  PACELINE_ASSERT(taken <= offered, "a link took more than it was offered");
  took(taken);
  if (header_sent_ < kFrameHeaderBytes || payload_sent_ < payload_bytes_) return false;
  end_frame();
  return true;
}

void Outgoing::fill_parts() {
  constexpr std::size_t kMaxParts = 32;
  parts_.clear();
  if (header_sent_ < kFrameHeaderBytes) {
    parts_.push_back(std::span<const std::byte>(header_).subspan(header_sent_));
  }
  std::size_t at = payload_sent_;
  const plan::Memory memory = call_->cursor.step(step_).src;
  while (at < payload_bytes_ && parts_.size() < kMaxParts) {
    const std::size_t within = at % element_bytes_;
    const Run run = call_->memory.locate(memory, 0, first_ + at / element_bytes_);
    const std::size_t bytes =
        std::min<std::size_t>(run.count * element_bytes_ - within, payload_bytes_ - at);
    parts_.emplace_back(run.data + within, bytes);
    at += bytes;
  }
}

void Outgoing::took(std::size_t bytes) {
  const std::size_t of_header = std::min(bytes, kFrameHeaderBytes - header_sent_);
  header_sent_ += of_header;
  payload_sent_ += bytes - of_header;
  Traffic& traffic = call_->traffic_with(peer_);
  traffic.header_bytes_sent += of_header;
  traffic.payload_bytes_sent += bytes - of_header;
  CallCursor& cursor = call_->cursor;
  const std::uint64_t past = first_ + payload_sent_ / element_bytes_;
  if (bytes != 0) {
    cursor.advance(step_, past - cursor.at(step_));
    call_->moved = true;
  }
}

void Outgoing::end_frame() {
  CallCursor& cursor = call_->cursor;
  const plan::Step& step = cursor.step(step_);
  ++call_->traffic_with(peer_).messages_sent;
  if (step.kind == Kind::kPost || cursor.at(step_) == step.elements.end) cursor.finish(step_);
  call_ = nullptr;
}

}  // namespace paceline
