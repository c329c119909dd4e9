// SPDX-License-Identifier: Apache-2.0
// What the ledger costs a collective: blocking all-reduces between two threads over memory links.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/side_by_side.h"
#include "paceline/paceline.h"

namespace paceline::bench {
namespace {

constexpr int kRounds = 1001;  // of less than a time slice each

void allreduce(Communicator& comm, std::size_t bytes, int runs) {
  std::vector<float> data(bytes / sizeof(float));
  off_and_on(
      comm, "allreduce of " + std::to_string(bytes) + " bytes",
      {.run = [&] { comm.allreduce(std::span(data), ReduceOp::kMax, {.label = "bucket 0"}); },
       .start = [&] { comm.start_ledger(); },
       .take = [&] { (void)comm.take_ledger(); },
       .runs = runs},
      kRounds);
}

}  // namespace
}  // namespace paceline::bench

int main() {
  paceline::spawn_ranks(2, [](paceline::Communicator& comm) {
    paceline::bench::allreduce(comm, 4 << 10, 100);
    paceline::bench::allreduce(comm, 1 << 20, 2);
  });
}
