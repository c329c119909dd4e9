// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/sim/broken_rule.h"
#include "paceline/sim/check.h"

namespace paceline::sim {

using plan::Kind;
using plan::Step;

// Whoever can move is found from a random place on, or from the front when somebody is to starve.
void World::run() {
  const bool random = options_.choice == Choice::kRandom;
  std::size_t idle = actors_.size();  // those who only wait for flags: they never finish
  for (const Actor& actor : actors_) idle -= actor.role == Role::kFlags ? 0U : 1U;
  while (actors_.size() > idle) {
    const std::size_t start = random ? random_.below(actors_.size()) : 0;
    Moved moved = Moved::kNo;
    for (std::size_t tried = 0; tried < actors_.size() && moved == Moved::kNo; ++tried) {
      const std::size_t i = (start + tried) % actors_.size();
      moved = move(actors_[i]);
      if (moved != Moved::kForGood) continue;
      actors_.erase(actors_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (moved == Moved::kNo) throw BrokenRule("deadlock");
  }
  for (const Actor& actor : actors_) {
    while (move(actor) == Moved::kYes) continue;
  }
  for (const auto& frames : links_) {
    if (!frames.empty()) throw BrokenRule("a frame was left over: nobody received it");
  }
}

World::Moved World::move(const Actor& actor) {
  switch (actor.role) {
    case Role::kScript: return move_script(actor.rank);
    case Role::kFlags: return move_flags(actor.rank, static_cast<int>(actor.index));
    case Role::kOut: return move_out(actor.rank, actor.call, static_cast<int>(actor.index));
    case Role::kIn: return move_in(actor.rank, actor.call, static_cast<int>(actor.index));
    case Role::kLocal: return move_local(actor.rank, actor.call, actor.index);
  }
  return Moved::kNo;
}

World::Moved World::move_script(int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const ScriptLine line = scripts_[r][script_next_[r]];
  if (line.wait && at(rank, line.call).left > 0) return Moved::kNo;
  line.wait ? finish_call(rank, line.call) : issue(rank, line.call);
  return ++script_next_[r] == scripts_[r].size() ? Moved::kForGood : Moved::kYes;
}

void World::issue(int rank, std::size_t call) {
  RankCall& c = at(rank, call);
  const std::size_t bytes = c.schedule.in.size() * size_of(calls_[call].dtype);
  if (c.input.size() != bytes) {
    throw UsageError(fmt::format("the input of rank {} in call {} has {} bytes, not {}", rank, call,
                                 c.input.size(), bytes));
  }
  c.memory->write_in(c.input);
  c.issued = true;
}

void World::finish_call(int rank, std::size_t call) {
  RankCall& c = at(rank, call);
  for (int q = 0; q < world_ && calls_[call].what == Collective::kBarrier; ++q) {
    if (at(q, call).issued) continue;
    throw BrokenRule(fmt::format("rank {} left a barrier that rank {} has not entered", rank, q));
  }
  c.result = c.memory->read_out();
  c.memory->scribble();  // the caller reuses its memory at once
  c.returned = true;
}

World::Moved World::move_flags(int rank, int from) {
  auto& frames = link(from, rank);
  if (frames.empty() || !frames.front().is_flag) return Moved::kNo;
  std::size_t& stored = word(from, rank, frames.front().message);
  stored = std::max(stored, frames.front().call + 1);
  frames.pop_front();
  return Moved::kYes;
}

World::Moved World::move_out(int rank, std::size_t call, int peer) {
  RankCall& c = at(rank, call);
  Lane& lane = c.out[static_cast<std::size_t>(peer)];
  if (lane.finished()) return Moved::kForGood;
  const std::uint32_t i = lane.steps[lane.next];
  const Step& step = c.schedule.steps[i];
  if (step.kind != Kind::kSend || !may_leave(rank, call, peer)) return Moved::kNo;
  const Range rest{c.progress[i].at, limit(c, i)};
  if (rest.empty() && !step.elements.empty()) return Moved::kNo;
  const std::uint64_t n = some(std::min(rest.size(), options_.max_frame));
  const Range elements{rest.begin, rest.begin + n};
  auto payload = arithmetic_[call].load(step, elements, *c.memory);
  traffic_[call].add(rank, peer, 0, n, payload.size());
  send_frame(rank, peer,
             {.call = call,
              .message = c.progress[i].message,
              .wire = step.wire,
              .elements = elements,
              .payload = std::move(payload)});
  advance(rank, call, i, n);
  if (!c.progress[i].done) return Moved::kYes;
  traffic_[call].add(rank, peer, 1, 0, 0);
  ++lane.next;
  return lane.finished() ? Moved::kForGood : Moved::kYes;
}

World::Moved World::move_in(int rank, std::size_t call, int peer) {
  RankCall& c = at(rank, call);
  auto& frames = link(peer, rank);
  if (!c.issued || frames.empty()) return Moved::kNo;
  Frame& frame = frames.front();
  if (frame.is_flag || frame.call != call) return Moved::kNo;
  Lane& lane = c.in[static_cast<std::size_t>(peer)];
  const std::uint32_t i = lane.steps[lane.next];
  const Step& step = c.schedule.steps[i];
  if (frame.message != c.progress[i].message || frame.wire != step.wire ||
      frame.elements.begin != c.progress[i].at) {
    throw BrokenRule(fmt::format("rank {}: '{}' at {} meets message {} at {}", rank, describe(step),
                                 c.progress[i].at, frame.message, frame.elements.begin));
  }
  const std::uint64_t free_end = limit(c, i);
  if (free_end < frame.elements.end) {
    throw BrokenRule(fmt::format("rank {}: a frame finds the destination of '{}' busy from {} on",
                                 rank, describe(step), free_end));
  }
  const std::uint64_t n = some(frame.elements.size());
  const Range elements{frame.elements.begin, frame.elements.begin + n};
  compute(rank, call, step, elements, std::span(frame.payload).subspan(frame.taken_bytes));
  frame.taken_bytes += n * size_of(calls_[call].dtype, frame.wire);
  frame.elements.begin += n;
  if (frame.elements.empty()) frames.pop_front();
  advance(rank, call, i, n);
  if (c.progress[i].done) ++lane.next;
  return lane.finished() ? Moved::kForGood : Moved::kYes;
}

World::Moved World::move_local(int rank, std::size_t call, std::uint32_t step) {
  const RankCall& c = at(rank, call);
  if (!c.issued) return Moved::kNo;
  bool moved = false;
  switch (c.schedule.steps[step].kind) {
    case Kind::kFold: moved = fold(rank, call, step); break;
    case Kind::kPost: moved = post(rank, call, step); break;
    case Kind::kAwait: moved = await(rank, call, step); break;
    case Kind::kSend:
    case Kind::kRecv: break;
  }
  if (!moved) return Moved::kNo;
  return c.progress[step].done ? Moved::kForGood : Moved::kYes;
}

bool World::fold(int rank, std::size_t call, std::uint32_t step) {
  const RankCall& c = at(rank, call);
  const Range rest{c.progress[step].at, limit(c, step)};
  if (rest.empty()) return false;
  const std::uint64_t n = some(std::min(rest.size(), options_.max_frame));
  compute(rank, call, c.schedule.steps[step], {rest.begin, rest.begin + n}, {});
  advance(rank, call, step, n);
  return true;
}

// All or nothing of the range, but one reader at a time.
bool World::post(int rank, std::size_t call, std::uint32_t step) {
  RankCall& c = at(rank, call);
  const Step& s = c.schedule.steps[step];
  if (limit(c, step) != s.elements.end || posts_before(rank, call, s.flag)) return false;
  const int reader = (s.to.first + c.progress[step].told) % world_;
  if (reader == rank || !options_.flags_as_frames) {
    std::size_t& stored = word(rank, reader, s.flag);
    stored = std::max(stored, call + 1);
  } else {
    Lane& lane = c.out[static_cast<std::size_t>(reader)];
    if (lane.steps[lane.next] != step || !may_leave(rank, call, reader)) return false;
    send_frame(rank, reader,
               {.call = call, .message = s.flag, .elements = {}, .is_flag = true, .payload = {}});
    ++lane.next;
  }
  if (++c.progress[step].told == s.to.size) advance(rank, call, step, s.elements.size());
  return true;
}

bool World::await(int rank, std::size_t call, std::uint32_t step) {
  const RankCall& c = at(rank, call);
  const Step& s = c.schedule.steps[step];
  if (limit(c, step) != s.elements.end) return false;
  for (int i = 0; i < s.from.size; ++i) {
    if (word((s.from.first + i) % world_, rank, s.flag) < call + 1) return false;
  }
  advance(rank, call, step, s.elements.size());
  return true;
}

void World::compute(int rank,
                    std::size_t call,
                    const Step& step,
                    Range elements,
                    std::span<const std::byte> incoming) {
  arithmetic_[call].apply(step, rank, elements, incoming,
                          [&](int owner) -> CallMemory& { return window(owner, rank, call); });
}

CallMemory& World::window(int owner, int rank, std::size_t call) {
  RankCall& c = at(owner, call);
  if (owner != rank && (!c.issued || (c.returned && !c.schedule.stage.outlives))) {
    throw BrokenRule(
        fmt::format("rank {} touches a window of rank {} outside of its call", rank, owner));
  }
  return *c.memory;
}

void World::advance(int rank, std::size_t call, std::uint32_t step, std::uint64_t count) {
  RankCall& c = at(rank, call);
  const Step& s = c.schedule.steps[step];
  c.progress[step].at += count;
  if (c.progress[step].at != s.elements.end) return;
  c.progress[step].done = true;
  --c.left;
  traffic_[call].add_windows(s, rank, world_, calls_[call].dtype);
}

// Rule 2: the first element that `step` may not touch yet.
std::uint64_t World::limit(const RankCall& c, std::uint32_t step) const {
  std::uint64_t end = c.schedule.steps[step].elements.end;
  for (std::uint32_t earlier : c.blockers[step]) {
    if (c.progress[earlier].done) continue;
    const std::uint64_t begin = std::max(c.progress[earlier].at, c.progress[step].at);
    if (begin < std::min(c.schedule.steps[earlier].elements.end, end)) end = begin;
  }
  return end;
}

// Rule 3, calls: nothing of an earlier call is left to send to `peer`; and the link has room.
bool World::may_leave(int rank, std::size_t call, int peer) const {
  if (!at(rank, call).issued) return false;
  const auto p = static_cast<std::size_t>(peer);
  const std::size_t link = static_cast<std::size_t>(rank) * rank_calls_.size() + p;
  if (links_[link].size() >= options_.capacity) return false;
  if (!options_.rules.calls_in_sequence) return true;
  if (options_.overtaking && at(peer, call).issued) return true;
  for (std::size_t earlier = 0; earlier < call; ++earlier) {
    if (!at(rank, earlier).out[p].finished()) return false;
  }
  return true;
}

// Rule 3, posts: an earlier call still has to post `flag`.
bool World::posts_before(int rank, std::size_t call, std::uint16_t flag) const {
  for (std::size_t earlier = 0; earlier < call && options_.rules.posts_in_sequence; ++earlier) {
    const RankCall& c = at(rank, earlier);
    for (std::size_t i = 0; i < c.progress.size(); ++i) {
      const Step& step = c.schedule.steps[i];
      if (step.kind == Kind::kPost && step.flag == flag && !c.progress[i].done) return true;
    }
  }
  return false;
}

void World::send_frame(int rank, int peer, Frame frame) {
  link(rank, peer).push_back(std::move(frame));
  ++frames_;
}

std::size_t& World::word(int poster, int reader, std::uint16_t flag) {
  auto& words = words_[pair(poster, reader)];
  if (words.size() <= flag) words.resize(flag + std::size_t{1});
  return words[flag];
}

void World::set_input(std::size_t call, int rank, std::span<const std::byte> elements) {
  at(rank, call).input.assign(elements.begin(), elements.end());
}

const std::vector<std::byte>& World::result(std::size_t call, int rank) const {
  return at(rank, call).result;
}

std::vector<LinkTraffic> World::links(std::size_t call) const { return traffic_[call].links(); }

}  // namespace paceline::sim
