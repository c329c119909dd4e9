// SPDX-License-Identifier: Apache-2.0
// Every rank sends to its right neighbour only. A partial sum of chunk c starts at rank c+1 and
// collects one term per hop until it is whole on rank c; whole chunks then go round once more.
#include "paceline/plan/builder.h"

namespace paceline::plan {

void ring_reduce_scatter(Builder& b) {
  const long r = b.rank();
  const long hops = b.world() - 1;
  if (hops > 1) b.set_sum();
  for (long i = 0; i < hops; ++i) {
    const bool first = i == 0;
    const bool last = i == hops - 1;
    b.send(first ? Memory::kIn : Memory::kSum, b.chunk(r - 1 - i), r + 1);
    b.receive_and_add(first ? Form::kT : Form::kSum, last ? Memory::kOut : Memory::kSum,
                      b.chunk(r - 2 - i), r - 1);
  }
}

void ring_allgather(Builder& b) {
  const long r = b.rank();
  for (long i = 0; i < b.world() - 1; ++i) {
    b.send(Memory::kOut, b.chunk(r - i), r + 1);
    b.receive(Memory::kOut, b.chunk(r - 1 - i), r - 1);
  }
}

}  // namespace paceline::plan
