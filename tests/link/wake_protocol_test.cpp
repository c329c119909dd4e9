// SPDX-License-Identifier: Apache-2.0
// The protocol of link/shm/waiting.h, step by step: each load and each store of shared memory is
// one step, and every order of the ranks' steps is walked through. The loads and stores that the
// proof needs are sequentially consistent, so these orders are all there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "paceline/link/shm/waiting.h"

namespace paceline::link {
namespace {

/// What may be done wrong, to see that it is found out.
enum class Flaw { kNone, kLooksBeforeAnnouncing, kLooksForSleepersFirst, kSleepsUnchecked };

/// What a rank does next.
enum class At : unsigned char {
  kPost,        // store the own counter
  kLookAsleep,  // load whether `peer` sleeps
  kReadValue,   // load the value that it wishes
  kReadRanks,   // load of which ranks
  kCheck,       // load the counter of `seen`, if it is among them
  kRing,        // exchange the word of `peer`
  kWake,        // system call: wake who sleeps on it
  kWishValue,   // store the own wish
  kWishRanks,
  kLook,      // load the counter of `seen`, before announcing
  kAnnounce,  // store the own word
  kLastLook,  // load the counter of `seen`, after announcing
  kSleep,     // system call: sleep if the word still says so
  kAsleep,    // nothing until woken
  kGetUp,     // store the own word
  kEnd
};

constexpr int kMost = 3;
constexpr unsigned char kRounds = 3;

struct Rank {
  At at = At::kPost;
  unsigned char round = 1, peer = 0, seen = 0, value = 0, ranks = 0;
};

struct State {
  std::array<Rank, kMost> rank{};
  std::array<unsigned char, kMost> posted{}, asleep{}, wish_value{}, wish_ranks{};
  [[nodiscard]] std::string key() const {
    return {reinterpret_cast<const char*>(this), sizeof *this};
  }
};
static_assert(std::has_unique_object_representations_v<State>);

class Explorer {
 public:
  Explorer(int world, Flaw flaw) : world_(world), flaw_(flaw) {}

  /// @return whether some order leaves a rank asleep for ever.
  bool finds_a_lost_wake() {
    State start;
    if (flaw_ == Flaw::kLooksForSleepersFirst)
      for (int rank = 0; rank < world_; ++rank) begin_looking_for_sleepers(start, rank);
    std::vector<State> left{start};
    seen_.insert(start.key());
    while (!left.empty()) {
      const State state = left.back();
      left.pop_back();
      bool moved = false;
      for (int rank = 0; rank < world_; ++rank) {
        if (!can_move(state, rank)) continue;
        moved = true;
        State next = state;
        step(next, rank);
        if (seen_.insert(next.key()).second) left.push_back(next);
      }
      if (!moved && !all_ended(state)) return true;
    }
    return false;
  }
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 private:
  static bool can_move(const State& state, int rank) {
    const At at = of(state, rank).at;
    return at != At::kAsleep && at != At::kEnd;
  }
  bool all_ended(const State& state) const {
    return std::all_of(state.rank.begin(), state.rank.begin() + world_,
                       [](const Rank& rank) { return rank.at == At::kEnd; });
  }
  static const Rank& of(const State& state, int rank) {
    return state.rank[static_cast<std::size_t>(rank)];
  }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  /// All others in odd rounds, the next one in even ones: wishes differ in value and in ranks.
  unsigned char wanted(int rank, int round) const {
    const int all = (1 << world_) - 1;
    const int mine = round % 2 == 1 ? all & ~(1 << rank) : 1 << (rank + 1) % world_;
    return static_cast<unsigned char>(mine);
  }

  void begin_looking_for_sleepers(State& state, int rank) const {
    Rank& me = state.rank[index(rank)];
    me.at = At::kLookAsleep;
    me.peer = rank == 0 ? 1 : 0;
  }
  void next_peer(State& state, int rank) const {
    Rank& me = state.rank[index(rank)];
    me.value = me.ranks = me.seen = 0;
    do ++me.peer;
    while (me.peer == rank);
    me.at = At::kLookAsleep;
    if (me.peer < world_) return;
    me.peer = 0;
    me.at = flaw_ == Flaw::kLooksForSleepersFirst ? At::kPost : At::kWishValue;
  }
  void next_round(Rank& me, State& state, int rank) const {
    me.seen = 0;
    me.at = At::kEnd;
    if (me.round == kRounds) return;
    ++me.round;
    me.at = At::kPost;
    if (flaw_ == Flaw::kLooksForSleepersFirst) begin_looking_for_sleepers(state, rank);
  }

  /// Looks at one of the `ranks`; goes to `met` after the last, to `unmet` if one lacks.
  void look(const State& state,
            Rank& me,
            unsigned char ranks,
            unsigned char value,
            At unmet,
            At met) const {
    while (me.seen < world_ && (ranks >> me.seen & 1) == 0) ++me.seen;
    const bool lacks = me.seen < world_ && state.posted[me.seen] < value;
    if (!lacks && me.seen < world_ && ranks >> (me.seen + 1) != 0) {
      ++me.seen;
      return;
    }
    me.seen = 0;
    me.at = lacks ? unmet : met;
  }

  void step(State& state, int rank) const {
    Rank& me = state.rank[index(rank)];
    if (me.at < At::kWishValue) return post_step(state, me, rank);
    const unsigned char mine = wanted(rank, me.round);
    switch (me.at) {
      case At::kWishValue:
        state.wish_value[index(rank)] = me.round;
        me.at = At::kWishRanks;
        break;
      case At::kWishRanks:
        state.wish_ranks[index(rank)] = mine;
        me.at = At::kLook;
        break;
      case At::kLook:
        look(state, me, mine, me.round, At::kAnnounce, At::kEnd);
        if (me.at == At::kEnd) next_round(me, state, rank);
        break;
      case At::kAnnounce:
        state.asleep[index(rank)] = 1;
        me.at = flaw_ == Flaw::kLooksBeforeAnnouncing ? At::kSleep : At::kLastLook;
        break;
      case At::kLastLook: look(state, me, mine, me.round, At::kSleep, At::kGetUp); break;
      case At::kSleep:
        me.at = state.asleep[index(rank)] != 0 || flaw_ == Flaw::kSleepsUnchecked ? At::kAsleep
                                                                                  : At::kGetUp;
        break;
      default:
        state.asleep[index(rank)] = 0;
        me.at = At::kLook;
        break;
    }
  }

  void post_step(State& state, Rank& me, int rank) const {
    switch (me.at) {
      case At::kPost:
        state.posted[index(rank)] = me.round;
        me.at = At::kWishValue;
        if (flaw_ != Flaw::kLooksForSleepersFirst) begin_looking_for_sleepers(state, rank);
        break;
      case At::kLookAsleep:
        if (state.asleep[me.peer] == 0)
          next_peer(state, rank);
        else
          me.at = At::kReadValue;
        break;
      case At::kReadValue:
        me.value = state.wish_value[me.peer];
        me.at = At::kReadRanks;
        break;
      case At::kReadRanks:
        me.ranks = state.wish_ranks[me.peer];
        me.at = At::kCheck;
        if ((me.ranks >> rank & 1) == 0) next_peer(state, rank);
        break;
      case At::kCheck:
        look(state, me, me.ranks, me.value, At::kEnd, At::kRing);
        if (me.at == At::kEnd) next_peer(state, rank);
        break;
      case At::kRing:
        me.at = At::kWake;
        if (std::exchange(state.asleep[me.peer], 0) == 0) next_peer(state, rank);
        break;
      default: {
        Rank& woken = state.rank[me.peer];
        if (woken.at == At::kAsleep) woken.at = At::kGetUp;
        next_peer(state, rank);
      }
    }
  }

  const int world_;
  const Flaw flaw_;
  std::unordered_set<std::string> seen_;
};

TEST(WakeProtocol, no_order_of_steps_of_2_ranks_loses_a_wake) {
  Explorer explorer(2, Flaw::kNone);
  EXPECT_FALSE(explorer.finds_a_lost_wake());
  EXPECT_GT(explorer.states(), 500U);
}

TEST(WakeProtocol, no_order_of_steps_of_3_ranks_loses_a_wake) {
  Explorer explorer(3, Flaw::kNone);
  EXPECT_FALSE(explorer.finds_a_lost_wake());
  EXPECT_GT(explorer.states(), 50'000U);
  RecordProperty("states", static_cast<int>(explorer.states()));
}

TEST(WakeProtocol, a_sleeper_that_does_not_look_after_it_announced_is_found_out) {
  EXPECT_TRUE(Explorer(2, Flaw::kLooksBeforeAnnouncing).finds_a_lost_wake());
  EXPECT_TRUE(Explorer(3, Flaw::kLooksBeforeAnnouncing).finds_a_lost_wake());
}

TEST(WakeProtocol, a_poster_that_looks_for_sleepers_before_it_posts_is_found_out) {
  EXPECT_TRUE(Explorer(2, Flaw::kLooksForSleepersFirst).finds_a_lost_wake());
  EXPECT_TRUE(Explorer(3, Flaw::kLooksForSleepersFirst).finds_a_lost_wake());
}

TEST(WakeProtocol, a_sleep_that_does_not_compare_the_word_is_found_out) {
  EXPECT_TRUE(Explorer(2, Flaw::kSleepsUnchecked).finds_a_lost_wake());
}

TEST(WakeProtocol, the_last_of_all_posts_wakes_and_the_others_do_not) {
  constexpr int kWorld = 4;
  std::vector<WaitWords> words(kWorld);
  std::vector<WaitWords*> all;
  for (WaitWords& one : words) all.push_back(&one);
  std::vector<Interest> posts;
  for (int peer = 1; peer < kWorld; ++peer) posts.push_back({.peer = peer, .stage = 1, .post = 5});
  Waiting sleeper(0, all);
  const auto ready = [&] {
    return std::all_of(posts.begin(), posts.end(),
                       [&](const Interest& post) { return sleeper.has_posted(post); });
  };
  std::jthread rank([&] { EXPECT_TRUE(sleeper.sleep_until(posts, ready, Deadline::never())); });
  while (!words[0].bell.is_asleep()) std::this_thread::yield();
  for (int peer : {2, 3}) {
    Waiting poster(peer, all);
    poster.post(0, 9);
    poster.post(1, 4);
    poster.post(1, 5);
    poster.ring_for_bytes(0);
    EXPECT_TRUE(words[0].bell.is_asleep());
  }
  Waiting(1, all).post(1, 6);
  rank.join();
  EXPECT_FALSE(words[0].bell.is_asleep());
}

}  // namespace
}  // namespace paceline::link
