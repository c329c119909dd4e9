// SPDX-License-Identifier: Apache-2.0
// Three ranks as threads sum a buffer.
#include <paceline/paceline.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

int main() {
  paceline::spawn_ranks(3, [](paceline::Communicator& comm) {
    std::vector<float> data(1000, static_cast<float>(comm.rank() + 1));
    comm.allreduce(std::span<float>(data), paceline::ReduceOp::kSum);
    if (!std::ranges::all_of(data, [](float value) { return value == 6; }))
      throw std::runtime_error("1 + 2 + 3 is not 6");
  });
}
