// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/executor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "paceline/base/assert.h"
#include "paceline/comm/link_error.h"

namespace paceline {

using plan::Kind;

Executor::Executor(int rank,
                   int world,
                   link::Fabric* fabric,
                   FrameTag tag,
                   std::size_t segment_bytes,
                   const CallHistory& history)
    : rank_(rank),
      world_(world),
      folder_(rank, world),
      history_(history),
      out_(static_cast<std::size_t>(world)),
      in_(static_cast<std::size_t>(world)) {
  for (int peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    const auto p = static_cast<std::size_t>(peer);
    out_[p] = std::make_unique<Outgoing>(peer, fabric->to(peer), tag, segment_bytes);
    in_[p] = std::make_unique<Incoming>(peer, fabric->to(peer), tag, folder_);
  }
  link::Windows* const windows = fabric == nullptr ? nullptr : fabric->windows();
  if (windows != nullptr) board_ = std::make_unique<WindowBoard>(rank, world, *windows);
}

void Executor::add(std::shared_ptr<CallState> call) {
  PACELINE_ASSERT(calls_.empty() || calls_.back()->sequence < call->sequence, "calls out of order");
  next_ = call->sequence + 1;
  calls_.push_back(std::move(call));
  calls_.back()->memory.bind(
      scratch_);  // if it throws, the call is in flight and fails with the rest
}

bool Executor::advance(Reach reach) {
  if (reach == Reach::kWindows) {
    PACELINE_ASSERT(!needs_links(), "a call over links that nobody looks at");
    return advance_local();
  }
  bool moved = false;
  for (std::size_t peer = 0; peer < in_.size(); ++peer) {
    if (in_[peer]) moved = receive(static_cast<int>(peer)) || moved;
  }
  moved = advance_local() || moved;
  for (const auto& out : out_) {
    if (out) moved = out->move(calls_) || moved;
  }
  return moved;
}

bool Executor::needs_links() const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [](const auto& call) { return !call->over_windows; });
}

bool Executor::advance_local() {
  bool moved = false;
  for (const auto& call : calls_) moved = advance_local(*call) || moved;
  return moved;
}

bool Executor::receive(int peer) {
  Incoming& in = *in_[static_cast<std::size_t>(peer)];
  const bool watched = lacks_post_of(peer);
  try {
    return in.move(calls_, history_, watched);
  } catch (const PeerLost&) {
    // It may have posted all that we wait for since that look, and then have left in good order.
    if (!watched || lacks_post_of(peer) || in.wanted(calls_)) throw;
    return true;
  }
}

bool Executor::advance_local(CallState& call) {
  if (call.over_windows && !call.opened && !open(call)) return false;
  bool moved = false;
  while (call.cursor.first_local() != CallCursor::kNone) {
    const auto index = call.cursor.first_local();
    if (!do_local(call, index)) break;
    call.moved = moved = true;
    if (call.cursor.first_local() == index) break;  // the others' turn
  }
  return moved;
}

// One step, or a part of it. @return whether anything moved.
bool Executor::do_local(CallState& call, CallCursor::StepIndex index) {
  CallCursor& cursor = call.cursor;
  const plan::Step& step = cursor.step(index);
  if (step.kind == Kind::kFold) return fold(call, index);
  if (cursor.limit(index) != step.elements.end) return false;
  if (step.kind == Kind::kPost) {
    if (!post(call, step)) return false;
  } else if (call.over_windows) {
    if (!all_posted_in_windows(call, step)) return false;
  } else {
    if (!all_posted(call, step)) return false;
    count_posts(call, step);
  }
  cursor.finish(index);
  return true;
}

bool Executor::fold(CallState& call, CallCursor::StepIndex index) {
  constexpr std::size_t kBytesPerTurn = 256 << 10;
  CallCursor& cursor = call.cursor;
  const plan::Step& step = cursor.step(index);
  const std::uint64_t at = cursor.at(index);
  const std::uint64_t limit = cursor.limit(index);
  const std::uint64_t turn = kBytesPerTurn / size_of(call.descriptor.dtype, Form::kSum);
  const std::uint64_t count = std::min(limit - at, turn);
  if (count == 0 && limit != step.elements.end) return false;
  folder_.fold(call, step, nullptr, at, count);
  if (call.over_windows) count_windows(call, step, count);
  cursor.advance(index, count);
  if (cursor.at(index) == step.elements.end) cursor.finish(index);
  return true;
}

bool Executor::all_posted(const CallState& call, const plan::Step& step) const {
  for (int i = 0; i < step.from.size; ++i) {
    const int peer = (step.from.first + i) % world_;
    if (peer == rank_) continue;
    if (!in_[static_cast<std::size_t>(peer)]->posted(call, step.flag)) return false;
  }
  return true;
}

void Executor::count_posts(CallState& call, const plan::Step& step) const {
  for (int i = 0; i < step.from.size; ++i) {
    const int peer = (step.from.first + i) % world_;
    if (peer == rank_) continue;
    Traffic& traffic = call.traffic_with(peer);
    ++traffic.messages_received;
    traffic.header_bytes_received += kFrameHeaderBytes;
  }
}

std::vector<std::shared_ptr<CallState>> Executor::take_done() {
  const auto is_done = [](const auto& call) { return call->cursor.done(); };
  std::vector<std::shared_ptr<CallState>> done;
  std::copy_if(calls_.begin(), calls_.end(), std::back_inserter(done), is_done);
  if (done.empty()) return done;
  std::erase_if(calls_, is_done);
  for (const auto& call : done) call->memory.release(scratch_);
  if (board_) close(done);
  return done;
}

std::vector<std::shared_ptr<CallState>> Executor::take_from(std::uint64_t from) {
  std::vector<std::shared_ptr<CallState>> taken;
  const auto keep = std::find_if(calls_.begin(), calls_.end(),
                                 [&](const auto& call) { return call->sequence >= from; });
  taken.assign(std::make_move_iterator(keep), std::make_move_iterator(calls_.end()));
  calls_.erase(keep, calls_.end());
  // Peers may still write into the memory of a call that has failed here.
  if (board_ && !taken.empty()) board_->windows().quarantine();
  for (const auto& call : taken) release(*call);
  return taken;
}

void Executor::release(const CallState& call) {
  for (const auto& out : out_) {
    if (out) out->forget(call);
  }
  for (const auto& in : in_) {
    if (in) in->forget(call);
  }
}

bool Executor::waits_for(int peer) const {
  const auto p = static_cast<std::size_t>(peer);
  return out_[p]->blocked() || in_[p]->wanted(calls_) || lacks_post_of(peer);
}

std::uint64_t Executor::bytes_from(int peer) const {
  std::uint64_t seen = in_[static_cast<std::size_t>(peer)]->bytes_taken();
  for (int stage = 0; board_ && stage < link::Windows::kStages; ++stage) {
    seen += board_->posted(peer, stage);
  }
  return seen;
}

std::vector<link::Interest> Executor::interests() const {
  std::vector<link::Interest> all;
  for (int peer = 0; peer < world_; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    if (!out_[p]) continue;
    const link::Interest one{
        .peer = peer, .send = out_[p]->blocked(), .recv = in_[p]->wanted(calls_)};
    if (one.send || one.recv) all.push_back(one);
  }
  if (board_) add_window_interests(all);
  return all;
}

}  // namespace paceline
