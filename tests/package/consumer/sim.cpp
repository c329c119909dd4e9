// SPDX-License-Identifier: Apache-2.0
#include <paceline/sim/execute.h>

int main() {
  const std::vector<std::vector<float>> inputs{{1, 2, 3}, {10, 20, 30}};
  const auto outcome = paceline::sim::execute<float>(
      paceline::Algorithm::kRing, {.world = 2, .count = 3}, paceline::ReduceOp::kSum, inputs);
  return outcome.results[1] == std::vector<float>{11, 22, 33} && outcome.links.size() == 2 ? 0 : 1;
}
