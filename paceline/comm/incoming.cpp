// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/incoming.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "paceline/base/assert.h"
#include "paceline/comm/link_error.h"

namespace paceline {

namespace {
// A folding receive reads this much before it folds: large enough for one system call to pay, small
// enough that the bytes are still in the second-level cache.
constexpr std::size_t kFoldBytes = 256 << 10;
// Bytes that one turn takes before the other links get theirs.
constexpr std::size_t kBytesPerTurn = 1 << 20;
constexpr std::uint32_t kMaxFlags = 64;
// Posts of one flag from the oldest call in flight on. Flags are read only as calls need them, so
// no rank of this job runs so far ahead.
constexpr std::size_t kMaxPosts = 4096;
}  // namespace

Incoming::Incoming(int peer, link::Link& link, FrameTag tag, Folder& folder)
    : peer_(peer), link_(link), tag_(tag), folder_(folder) {}

bool Incoming::expecting(const CallList& calls) const {
  return std::any_of(calls.begin(), calls.end(), [&](const auto& call) {
    return call->cursor.first_in(peer_) != CallCursor::kNone || awaiting(*call);
  });
}

// Whether the call waits for a flag that has not come yet.
bool Incoming::awaiting(const CallState& call) const {
  const plan::Step* step = call.over_windows ? nullptr : call.cursor.awaiting();
  if (step == nullptr || post_for(call, step->flag) != nullptr) return false;
  return (peer_ - step->from.first + call.world) % call.world < step->from.size;
}

bool Incoming::wanted(const CallList& calls) const { return !blocked_ && expecting(calls); }

bool Incoming::move(const CallList& calls, const CallHistory& history, bool watched) {
  if (!watched && !expecting(calls)) return false;
  bool moved = false;
  const std::uint64_t before = taken_;
  try {
    while (turn(calls, history) == Turn::kMoved) {
      moved = true;
      if (taken_ - before > kBytesPerTurn || (call_ == nullptr && !expecting(calls))) break;
    }
  } catch (const link::LinkClosed& closed) {
    // What came before the end may be all that was needed; the end will still be there next time.
    if (!moved) throw PeerLost(peer_, closed.what());
  }
  return moved;
}

Incoming::Turn Incoming::turn(const CallList& calls, const CallHistory& history) {
  if (header_got_ < kFrameHeaderBytes) {
    const std::size_t before = header_got_;
    if (!read_header()) return header_got_ == before ? Turn::kStuck : Turn::kMoved;
    if (header_.type == FrameType::kFlag) {
      store_flag(calls);
      return Turn::kMoved;
    }
  }
  if (call_ == nullptr) {
    blocked_ = !bind(calls, history);
    if (blocked_) return Turn::kStuck;
  }
  return take_payload() ? Turn::kMoved : Turn::kStuck;
}

bool Incoming::read_header() {
  header_got_ += take(std::span(raw_).subspan(header_got_));
  if (header_got_ < kFrameHeaderBytes) return false;
  DecodedFrame decoded = decode(raw_);
  if (!decoded.error.empty()) throw ProtocolBroken(peer_, decoded.error);
  header_ = decoded.header;
  if (header_.generation != tag_.generation || header_.communicator != tag_.communicator) {
    throw ProtocolBroken(peer_, "a frame of another job or communicator");
  }
  return true;
}

void Incoming::store_flag(const CallList& calls) {
  if (header_.message >= kMaxFlags) throw ProtocolBroken(peer_, "a flag number out of range");
  if (flags_.size() <= header_.message) flags_.resize(header_.message + 1);
  std::deque<Post>& posts = flags_[header_.message];
  if (!posts.empty() && header_.sequence <= posts.back().sequence) {
    throw ProtocolBroken(peer_, "a flag that was posted out of order");
  }
  while (!posts.empty() && posts.front().sequence < calls.front()->sequence) posts.pop_front();
  if (posts.size() == kMaxPosts) throw ProtocolBroken(peer_, "too many flags ahead of its calls");
  posts.push_back({header_.sequence, header_.descriptor});
  header_got_ = 0;
}

// The first post that is not of an earlier call; null if there is none yet.
const Incoming::Post* Incoming::post_for(const CallState& call, std::uint16_t flag) const {
  if (flag >= flags_.size()) return nullptr;
  const auto& posts = flags_[flag];
  const auto found = std::lower_bound(
      posts.begin(), posts.end(), call.sequence,
      [](const Post& post, std::uint64_t sequence) { return post.sequence < sequence; });
  return found == posts.end() ? nullptr : &*found;
}

bool Incoming::posted(const CallState& call, std::uint16_t flag) const {
  const Post* post = post_for(call, flag);
  if (post == nullptr) return false;
  // A post of a later call: the peer's call of this number had none, so it was another one.
  if (post->sequence != call.sequence || post->descriptor != call.hash) {
    throw DescriptorDiffers(peer_, call.sequence);
  }
  return true;
}

bool Incoming::bind(const CallList& calls, const CallHistory& history) {
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const auto& call) {
    return call->sequence == header_.sequence;
  });
  if (found == calls.end()) {
    check_against_history(calls, history);
    return false;  // not issued yet, or issued and about to be handed to the driver
  }
  if ((*found)->hash != header_.descriptor) throw DescriptorDiffers(peer_, header_.sequence);
  call_ = found->get();
  step_ = call_->cursor.first_in(peer_);
  payload_got_ = scratch_got_ = 0;
  check_against_step();
  return true;
}

void Incoming::check_against_history(const CallList& calls, const CallHistory& history) const {
  const auto issued = history.issued_hash(header_.sequence);
  if (!issued) return;
  if (*issued != 0 && *issued != header_.descriptor) {
    throw DescriptorDiffers(peer_, header_.sequence);
  }
  if (!calls.empty() && header_.sequence < calls.front()->sequence) {
    throw ProtocolBroken(peer_,
                         fmt::format("a frame of call #{}, which has ended", header_.sequence));
  }
}

void Incoming::check_against_step() const {
  if (step_ == CallCursor::kNone) throw ProtocolBroken(peer_, "a message too many");
  const plan::Step& step = call_->cursor.step(step_);
  const std::size_t element = size_of(call_->descriptor.dtype, step.wire);
  const std::uint64_t left = step.elements.end - call_->cursor.at(step_);
  const bool fits = header_.message == call_->cursor.message(step_) && header_.wire == step.wire &&
                    header_.offset == call_->cursor.at(step_) &&
                    header_.length_bytes % element == 0 && header_.length_bytes / element <= left &&
                    (header_.length_bytes != 0 || left == 0);
  if (!fits) {
    throw ProtocolBroken(
        peer_, fmt::format("message {} at element {} with {} bytes, where message {} at element {} "
                           "was due",
                           header_.message, header_.offset, header_.length_bytes,
                           call_->cursor.message(step_), call_->cursor.at(step_)));
  }
}

bool Incoming::take_payload() {
  const plan::Step& step = call_->cursor.step(step_);
  element_bytes_ = size_of(call_->descriptor.dtype, step.wire);
  std::size_t got = 0;
  if (payload_got_ < header_.length_bytes) {
    got = step.from.size == 0 ? take_in_place() : take_and_fold();
    if (got == 0) return false;
    call_->moved = true;
    call_->traffic_with(peer_).payload_bytes_received += got;
  }
  if (payload_got_ == header_.length_bytes) end_frame();
  return true;
}

std::size_t Incoming::take_in_place() {
  CallCursor& cursor = call_->cursor;
  const plan::Step& step = cursor.step(step_);
  const std::uint64_t at = cursor.at(step_);
  const std::size_t within = payload_got_ % element_bytes_;
  const std::uint64_t free = cursor.limit(step_) - at;
  if (free == 0) return 0;
  const Run run = call_->memory.locate(step.dst, step.peer, at);
  const std::size_t room = std::min(run.count, free) * element_bytes_ - within;
  const std::size_t bytes = std::min<std::size_t>(room, header_.length_bytes - payload_got_);
  const std::size_t got = take({run.data + within, bytes});
  payload_got_ += got;
  cursor.advance(step_, header_.offset + payload_got_ / element_bytes_ - at);
  return got;
}

std::size_t Incoming::take_and_fold() {
  CallCursor& cursor = call_->cursor;
  const std::uint64_t at = cursor.at(step_);
  const std::uint64_t free = cursor.limit(step_) - at;
  if (free == 0) return 0;
  if (scratch_.size() < kFoldBytes) scratch_.resize(kFoldBytes);
  const std::size_t room = std::min<std::uint64_t>(free * element_bytes_, scratch_.size());
  const std::size_t bytes =
      std::min<std::size_t>(room - scratch_got_, header_.length_bytes - payload_got_);
  const std::size_t got = take(std::span(scratch_).subspan(scratch_got_, bytes));
  payload_got_ += got;
  scratch_got_ += got;
  const std::size_t whole = scratch_got_ / element_bytes_;
  if (whole != 0) {
    folder_.fold(*call_, cursor.step(step_), scratch_.data(), at, whole);
    cursor.advance(step_, whole);
    scratch_got_ -= whole * element_bytes_;
    std::memmove(scratch_.data(), scratch_.data() + whole * element_bytes_, scratch_got_);
  }
  return got;
}

void Incoming::end_frame() {
  CallCursor& cursor = call_->cursor;
  Traffic& traffic = call_->traffic_with(peer_);
  ++traffic.messages_received;
  traffic.header_bytes_received += kFrameHeaderBytes;
  call_->moved = true;
  if (cursor.at(step_) == cursor.step(step_).elements.end) cursor.finish(step_);
  call_ = nullptr;
  header_got_ = 0;
}

std::size_t Incoming::take(std::span<std::byte> into) {
  if (ahead_begin_ == ahead_end_) {
    if (into.size() >= ahead_.size()) {
      const std::size_t got = link_.try_recv(into);
      taken_ += got;
      return got;
    }
    ahead_begin_ = ahead_end_ = 0;  // try_recv may throw: what was read must not be read again
    ahead_end_ = link_.try_recv(ahead_);
  }
  const std::size_t bytes = std::min(into.size(), ahead_end_ - ahead_begin_);
  std::memcpy(into.data(), ahead_.data() + ahead_begin_, bytes);
  ahead_begin_ += bytes;
  taken_ += bytes;
  return bytes;
}

}  // namespace paceline
