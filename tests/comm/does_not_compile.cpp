// SPDX-License-Identifier: Apache-2.0
// Each CASE but 0 is a mistake that must not compile; does_not_compile.cmake knows the words.
#include <span>
#include <string>
#include <vector>

#include "paceline/paceline.h"

void use(paceline::Communicator& comm) {
  std::vector<float> data(8);
#if CASE == 0
  comm.allreduce(std::span(data), paceline::ReduceOp::kSum);
#elif CASE == 1
  std::vector<std::string> words(8);
  comm.allreduce(std::span(words), paceline::ReduceOp::kSum);
#elif CASE == 2
  comm.allreduce_async(std::span(data), paceline::ReduceOp::kSum);
#elif CASE == 3
  const paceline::Communicator copy = comm;
#elif CASE == 4
  const std::vector<float> fixed(8);
  comm.allreduce(std::span(fixed), paceline::ReduceOp::kSum);
#endif
}
