// SPDX-License-Identifier: Apache-2.0
// For small buffers: every rank sends all it has to all others and adds locally, chunk by chunk in
// the ring's order, so that the bits do not depend on the choice.
#include "paceline/plan/builder.h"

namespace paceline::plan {

void one_stage_allreduce(Builder& b) {
  const long r = b.rank();
  b.set_inbox(b.all());
  for (long d = 1; d < b.world(); ++d) {
    b.send(Memory::kIn, b.all(), r - d);
    b.receive(Memory::kInbox, b.all(), r + d);
  }
  for (long c = 0; c < b.world(); ++c) b.fold_inbox(b.all_from(c + 1), b.chunk(c));
}

}  // namespace paceline::plan
