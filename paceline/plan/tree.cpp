// SPDX-License-Identifier: Apache-2.0
// Logarithmic patterns: the binomial tree of broadcast and the dissemination barrier.
#include <bit>

#include "paceline/plan/builder.h"

namespace paceline::plan {

// v counts ranks from the root. v's parent is v without its lowest set bit; its children are v + d
// for the powers of two d below that bit, the farthest first because its subtree is the largest.
void tree_broadcast(Builder& b) {
  const auto world = static_cast<unsigned long>(b.world());
  const unsigned long v = b.wrap(b.rank() - b.root());
  const unsigned long low = v == 0 ? std::bit_ceil(world) : v & (~v + 1);
  if (v == 0) {
    b.copy(b.all());
  } else {
    b.set_in({});
    b.receive(Memory::kOut, b.all(), b.rank() - static_cast<long>(low));
  }
  for (unsigned long d = low / 2; d > 0; d /= 2) {
    if (v + d >= world) continue;
    b.send(v == 0 ? Memory::kIn : Memory::kOut, b.all(), b.rank() + static_cast<long>(d));
  }
}

// Round k: tell rank + 2^k, hear from rank - 2^k. The range {0, 1} holds no data: as posts and
// awaits write their range, it keeps the rounds of one rank in order.
void dissemination_barrier(Builder& b) {
  b.set_in({});
  b.set_out({});
  int round = 0;
  for (long d = 1; d < b.world(); d *= 2, ++round) {
    b.post(round, b.one(b.rank() + d), {0, 1});
    b.await(round, b.one(b.rank() - d), {0, 1});
  }
}

}  // namespace paceline::plan
