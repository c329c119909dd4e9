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

// Where ranks share memory nobody sends: all read what each has put into its window. Nobody says
// either that it has read, so the window outlives the call.
void one_stage_window_allreduce(Builder& b) {
  const Ranks self = b.one(b.rank());
  b.set_stage({.slices = 1, .slots = 1, .outlives = true});
  b.fold(Memory::kIn, self, Memory::kStage, self, b.all());
  b.post(0, b.others());
  b.await(0, b.others());
  for (long c = 0; c < b.world(); ++c) {
    b.fold(Memory::kIn, b.all_from(c + 1), Memory::kOut, self, b.chunk(c));
  }
}

}  // namespace paceline::plan
