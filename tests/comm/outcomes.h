// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What each rank of a group says when a collective fails.

#include <cstddef>
#include <functional>
#include <latch>
#include <string>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/comm/init.h"

namespace paceline::test {

struct Outcome {
  bool failed = false;
  CommErrc code{};
  int peer = -1;
  std::string text;
};

// Runs `body` on each rank and keeps what each rank's CommError says.
inline std::vector<Outcome> outcomes(int world,
                                     const std::function<void(Communicator&)>& body,
                                     const LocalOptions& options = {}) {
  std::vector<Outcome> all(static_cast<std::size_t>(world));
  std::latch everybody(world);
  spawn_ranks(
      world,
      [&](Communicator& comm) {
        Outcome& mine = all[static_cast<std::size_t>(comm.rank())];
        try {
          body(comm);
        } catch (const CommError& error) {
          mine = {true, error.code(), error.peer(), error.what()};
        }
        everybody.arrive_and_wait();  // so that no rank fails because another one has left
      },
      options);
  return all;
}

}  // namespace paceline::test
