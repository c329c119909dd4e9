// SPDX-License-Identifier: Apache-2.0
// DataParallel's way: everything goes to rank 0, which adds in device order 0, 1, … and sends the
// result to all. The one algorithm whose order of addition differs from the ring's.
#include "paceline/plan/builder.h"

namespace paceline::plan {

void relay_allreduce(Builder& b) {
  if (b.rank() != 0) {
    b.send(Memory::kIn, b.all(), 0);
    b.receive(Memory::kOut, b.all(), 0);
    return;
  }
  b.set_inbox(b.all());
  for (long q = 1; q < b.world(); ++q) b.receive(Memory::kInbox, b.all(), q);
  b.fold_inbox(b.all_from(0), b.all());
  for (long q = 1; q < b.world(); ++q) b.send(Memory::kOut, b.all(), q);
}

}  // namespace paceline::plan
