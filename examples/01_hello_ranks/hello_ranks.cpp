// SPDX-License-Identifier: Apache-2.0
// Each rank says who it is: the smallest program that `paceline run` can start.
#include <fmt/format.h>
#include <paceline/paceline.h>

#include <cstdio>
#include <exception>

int main() {
  try {
    const paceline::Communicator comm = paceline::init();  // returns when all ranks have met
    fmt::print("hello from rank {} of {}\n", comm.rank(), comm.world_size());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
