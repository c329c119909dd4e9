// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Rule 2 of paceline/plan/schedule.h: which steps of a schedule must wait for which. Private to
/// sim.

#include <cstdint>
#include <vector>

#include "paceline/plan/schedule.h"

namespace paceline::sim {

/// Rules that a test may drop, one at a time, to see the simulator notice.
struct Rules {
  bool calls_in_sequence = true;  ///< rule 3: to one peer, calls leave in sequence
  bool messages_in_program_order =
      true;                       ///< rule 3: to one peer, messages of a call leave in order
  bool posts_in_sequence = true;  ///< rule 3: posts of one flag go in sequence
  bool write_after_read = true;   ///< rule 2: a write waits for earlier reads
  bool one_memory = true;         ///< rule 2: kIn, kOut and kSum count as one memory
  bool flags_write = true;        ///< rule 2: kPost and kAwait write their range
};

/// Per step, the earlier steps that it conflicts with on elements that both touch.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> blockers_of(const plan::Schedule& schedule,
                                                                  int rank,
                                                                  int world,
                                                                  const Rules& rules);

}  // namespace paceline::sim
