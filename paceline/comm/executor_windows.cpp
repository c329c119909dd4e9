// SPDX-License-Identifier: Apache-2.0
// The executor's calls over shared memory: posts and awaits are words, folds reach into windows.
#include <algorithm>

#include "paceline/comm/executor.h"

namespace paceline {

using plan::Kind;

namespace {

// Calls `visit` for each rank that is not `rank`.
template <typename Visit>
void for_each_other(plan::Ranks ranks, int rank, int world, const Visit& visit) {
  for (int i = 0; i < ranks.size; ++i) {
    const int peer = (ranks.first + i) % world;
    if (peer != rank) visit(peer);
  }
}

}  // namespace

bool Executor::open(CallState& call) {
  call.opened = board_->open(call, calls_.front()->sequence);
  return call.opened;
}

// Posts of one stage go in sequence order: an earlier call may still have some to make.
bool Executor::post(CallState& call, const plan::Step& step) {
  const auto stage = static_cast<std::size_t>(WindowBoard::stage_of(step));
  for (const auto& earlier : calls_) {
    if (earlier.get() == &call) break;
    if (earlier->over_windows && earlier->posts_left[stage] != 0) return false;
  }
  board_->post(static_cast<int>(stage), WindowBoard::value_of(step, call.sequence));
  --call.posts_left[stage];
  for_each_other(step.to, rank_, world_,
                 [&](int peer) { ++call.traffic_with(peer).messages_sent; });
  return true;
}

bool Executor::all_posted_in_windows(CallState& call, const plan::Step& step) {
  const int stage = WindowBoard::stage_of(step);
  const std::uint64_t value = WindowBoard::value_of(step, call.sequence);
  for (int i = 0; i < step.from.size; ++i) {
    const int peer = (step.from.first + i) % world_;
    if (peer != rank_ && board_->posted(peer, stage) < value) return false;
  }
  for_each_other(step.from, rank_, world_, [&](int peer) {
    board_->look_up(call, peer);
    ++call.traffic_with(peer).messages_received;
  });
  return true;
}

void Executor::count_windows(CallState& call, const plan::Step& step, std::uint64_t count) const {
  const std::uint64_t bytes = count * size_of(call.descriptor.dtype);
  for_each_other(step.from, rank_, world_, [&](int peer) {
    Traffic& traffic = call.traffic_with(peer);
    traffic.payload_bytes_received += bytes;
    traffic.payload_bytes_read += bytes;
  });
  for_each_other(step.to, rank_, world_,
                 [&](int peer) { call.traffic_with(peer).payload_bytes_sent += bytes; });
}

void Executor::close(const std::vector<std::shared_ptr<CallState>>& done) {
  for (const auto& call : done) board_->close(*call);
  board_->post_ended(calls_.empty() ? next_ : calls_.front()->sequence);
}

// What `call` waits for `peer` to post; it may have done so since.
std::optional<link::Interest> Executor::awaited_post(const CallState& call, int peer) const {
  if (!call.over_windows) return std::nullopt;
  if (!call.opened) {
    if (WindowBoard::is_ahead(call, calls_.front()->sequence)) return std::nullopt;
    return link::Interest{
        .peer = peer, .stage = WindowBoard::kEnded, .post = board_->blocked_by(call) + 1};
  }
  const plan::Step* const step = call.cursor.awaiting();
  if (step == nullptr || (peer - step->from.first + world_) % world_ >= step->from.size) {
    return std::nullopt;
  }
  return link::Interest{.peer = peer,
                        .stage = WindowBoard::stage_of(*step),
                        .post = WindowBoard::value_of(*step, call.sequence)};
}

bool Executor::lacks_post(const CallState& call, int peer) const {
  const auto awaited = awaited_post(call, peer);
  return awaited && board_->posted(peer, awaited->stage) < awaited->post;
}

bool Executor::lacks_post_of(int peer) const {
  return board_ && std::any_of(calls_.begin(), calls_.end(),
                               [&](const auto& call) { return lacks_post(*call, peer); });
}

// Of the first call only: it does not depend on later ones, so somebody always goes on.
void Executor::add_window_interests(std::vector<link::Interest>& all) const {
  for (const auto& call : calls_) {
    const std::size_t before = all.size();
    for (int peer = 0; peer < world_; ++peer) {
      if (peer == rank_) continue;
      if (const auto awaited = awaited_post(*call, peer)) all.push_back(*awaited);
    }
    if (all.size() != before) return;
  }
}

}  // namespace paceline
