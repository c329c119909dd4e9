// SPDX-License-Identifier: Apache-2.0
// What a call leaves in the ledger.
#include "paceline/comm/call_state.h"

namespace paceline {

void CallState::begin_record() {
  record = std::make_unique<CallRecord>(CallRecord{.sequence = sequence,
                                                   .what = descriptor.what,
                                                   .algorithm = descriptor.algorithm,
                                                   .op = descriptor.op,
                                                   .dtype = descriptor.dtype,
                                                   .root = descriptor.root,
                                                   .count = descriptor.count,
                                                   .label = descriptor.label,
                                                   .begin = Clock::now()});
  record->peers.resize(static_cast<std::size_t>(world));
  for (int peer = 0; peer < world; ++peer) {
    record->peers[static_cast<std::size_t>(peer)].peer = peer;
  }
}

CallRecord CallState::end_record() {
  CallRecord ended = std::move(*record);
  record.reset();
  ended.end = Clock::now();
  std::erase_if(ended.peers, [](const PeerTraffic& with) { return with.traffic == Traffic{}; });
  return ended;
}

Traffic CallState::total_traffic() const {
  Traffic total = traffic;
  if (record) {
    for (const PeerTraffic& with : record->peers) total += with.traffic;
  }
  return total;
}

}  // namespace paceline
