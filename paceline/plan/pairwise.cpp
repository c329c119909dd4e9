// SPDX-License-Identifier: Apache-2.0
// Every rank sends its share of chunk c straight to owner c, which adds them all at once: as many
// bytes as the ring, but a term travels as T, so 16-bit floats never travel as wider sums.
#include "paceline/plan/builder.h"

namespace paceline::plan {

void pairwise_reduce_scatter(Builder& b) {
  const long r = b.rank();
  b.set_inbox(b.chunk(r));
  for (long d = 1; d < b.world(); ++d) {
    b.send(Memory::kIn, b.chunk(r - d), r - d);
    b.receive(Memory::kInbox, b.chunk(r), r + d);
  }
  b.fold_inbox(b.all_from(r + 1), b.chunk(r));
}

void pairwise_allgather(Builder& b) {
  const long r = b.rank();
  for (long d = 1; d < b.world(); ++d) {
    b.send(Memory::kOut, b.chunk(r), r - d);
    b.receive(Memory::kOut, b.chunk(r + d), r + d);
  }
}

}  // namespace paceline::plan
