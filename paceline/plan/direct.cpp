// SPDX-License-Identifier: Apache-2.0
// For ranks that share memory: each reads the others' windows and writes into them, chunk by chunk
// in the ring's order. A rank whose memory the others cannot reach copies slices of it into a stage
// and back, a few rounds of slices at a time. Its peers see no difference.
#include "paceline/plan/builder.h"

namespace paceline::plan {
namespace {

// Three rounds are under way at a time. A fourth slot makes an all-reduce, whose results come back
// through the stage, 4 to 7 % slower; without it a reduce-scatter is 4 % slower.
constexpr std::uint32_t kSlots = 4;
constexpr std::uint32_t kSlotsWithResults = 3;
// A resident rank works on so many at a time. No more: a rank with a stage waits for the end of
// round i when it has begun no later one than i + 2.
constexpr std::uint32_t kTogether = 3;

// A round is one slice of each chunk. Its two flags: what others need is in this rank's window; this
// rank is done with the others' windows.
constexpr int ready(std::uint32_t round) { return static_cast<int>(2 * round); }
constexpr int done(std::uint32_t round) { return static_cast<int>(2 * round + 1); }

/// Rounds [begin, end).
struct Rounds {
  std::uint32_t begin = 0, end = 0;
};

/// What these rounds have of chunk `c`.
Range slices_of(const Builder& b, long c, Rounds rounds) {
  return {b.slice(c, rounds.begin).begin, b.slice(c, rounds.end - 1).end};
}

/// What the collectives differ in.
struct Parts {
  void (*copy_in)(Builder&, std::uint32_t round) = nullptr;   ///< kIn -> kStage
  void (*work)(Builder&, Rounds rounds) = nullptr;            ///< on all windows
  void (*copy_out)(Builder&, std::uint32_t round) = nullptr;  ///< kStage -> kOut
  [[nodiscard]] std::uint32_t slots() const { return copy_out ? kSlotsWithResults : kSlots; }
};

void copy_slice(Builder& b, Memory src, Memory dst, long c, std::uint32_t round) {
  const Ranks self = b.one(b.rank());
  b.fold(src, self, dst, self, b.slice(c, round));
}

// All but the own chunk: only this rank itself reads and writes that.
void copy_others_in(Builder& b, std::uint32_t round) {
  for (long c = b.rank() + 1; c < b.rank() + b.world(); ++c) {
    copy_slice(b, Memory::kIn, Memory::kStage, c, round);
  }
}

void copy_others_out(Builder& b, std::uint32_t round) {
  for (long c = b.rank() + 1; c < b.rank() + b.world(); ++c) {
    copy_slice(b, Memory::kStage, Memory::kOut, c, round);
  }
}

void copy_own_in(Builder& b, std::uint32_t round) {
  copy_slice(b, Memory::kIn, Memory::kStage, b.rank(), round);
}

void copy_all_in(Builder& b, std::uint32_t round) {
  for (long c = 0; c < b.world(); ++c) copy_slice(b, Memory::kIn, Memory::kStage, c, round);
}

void finish_round(Builder& b, const Parts& parts, std::uint32_t round) {
  b.await(done(round), b.others());
  if (parts.copy_out != nullptr) parts.copy_out(b, round);
}

// The last round is awaited first: whoever has posted that has posted all, so one sleep is enough.
void work_on(Builder& b, const Parts& parts, Rounds rounds) {
  for (std::uint32_t i = rounds.end; i > rounds.begin; --i) b.await(ready(i - 1), b.others());
  parts.work(b, rounds);
  for (std::uint32_t i = rounds.begin; i < rounds.end; ++i) b.post(done(i), b.others());
}

// Others may come later, or be done earlier: nothing here waits for them before it has to.
void all_rounds_resident(Builder& b, const Parts& parts) {
  for (std::uint32_t i = 0; i < b.slices(); ++i) b.post(ready(i), b.others());
  for (std::uint32_t i = 0; i < b.slices(); i += kTogether) {
    work_on(b, parts, {i, std::min(i + kTogether, b.slices())});
  }
  for (std::uint32_t i = b.slices(); i > 0; --i) b.await(done(i - 1), b.others());
}

// Round i begins, round i-1 is worked on, round i-2 ends: nobody waits for what has only just been
// asked for.
void all_rounds_staged(Builder& b, const Parts& parts) {
  b.set_stage({.slices = b.slices(), .slots = std::min(parts.slots(), b.slices())});
  for (std::uint32_t i = 0; i < b.slices() + 2; ++i) {
    if (i < b.slices()) {
      if (i >= parts.slots()) b.order();  // an earlier round had its place: rule 2 sees elements
      parts.copy_in(b, i);
      b.post(ready(i), b.others());
    }
    if (i >= 1 && i - 1 < b.slices()) work_on(b, parts, {i - 1, i});
    if (i >= 2) finish_round(b, parts, i - 2);
  }
}

void all_rounds(Builder& b, const Parts& parts) {
  b.resident() ? all_rounds_resident(b, parts) : all_rounds_staged(b, parts);
}

void send_rounds(Builder& b) {
  if (!b.resident()) b.set_stage({.slices = b.slices(), .slots = std::min(kSlots, b.slices())});
  for (std::uint32_t i = 0; i < b.slices(); ++i) {
    if (!b.resident() && i >= kSlots) b.await(done(i - kSlots), b.others());
    if (!b.resident()) copy_all_in(b, i);
    b.post(ready(i), b.others());
  }
  const std::uint32_t awaited = b.resident() || b.slices() < kSlots ? 0 : b.slices() - kSlots;
  for (std::uint32_t i = awaited; i < b.slices(); ++i) b.await(done(i), b.others());
}

void receive_rounds(Builder& b) {
  for (std::uint32_t i = 0; i < b.slices(); ++i) {
    b.await(ready(i), b.one(b.root()));
    for (long c = 0; c < b.world(); ++c) {
      b.fold(Memory::kIn, b.one(b.root()), Memory::kOut, b.one(b.rank()), b.slice(c, i));
    }
    b.post(done(i), b.one(b.root()));
  }
}

}  // namespace

void direct_allreduce(Builder& b) {
  const auto work = [](Builder& builder, Rounds rounds) {
    const long r = builder.rank();
    builder.fold(Memory::kIn, builder.all_from(r + 1), Memory::kOut, builder.all_from(r),
                 slices_of(builder, r, rounds));
  };
  all_rounds(b, {.copy_in = copy_others_in, .work = work, .copy_out = copy_others_out});
}

void direct_reduce_scatter(Builder& b) {
  const auto work = [](Builder& builder, Rounds rounds) {
    const long r = builder.rank();
    builder.fold(Memory::kIn, builder.all_from(r + 1), Memory::kOut, builder.one(r),
                 slices_of(builder, r, rounds));
  };
  all_rounds(b, {.copy_in = copy_others_in, .work = work});
}

void direct_allgather(Builder& b) {
  const auto work = [](Builder& builder, Rounds rounds) {
    for (long d = 1; d < builder.world(); ++d) {
      const long c = builder.rank() + d;
      builder.fold(Memory::kIn, builder.one(c), Memory::kOut, builder.one(builder.rank()),
                   slices_of(builder, c, rounds));
    }
  };
  all_rounds(b, {.copy_in = copy_own_in, .work = work});
}

void direct_broadcast(Builder& b) {
  if (b.rank() == b.root()) {
    b.copy(b.all());
    send_rounds(b);
  } else {
    b.set_in({});
    receive_rounds(b);
  }
}

void direct_barrier(Builder& b) {
  b.set_in({});
  b.set_out({});
  if (b.world() == 1) return;
  b.post(0, b.others());
  b.await(0, b.others());
}

}  // namespace paceline::plan
