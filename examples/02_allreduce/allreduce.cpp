// SPDX-License-Identifier: Apache-2.0
// Averages eight numbers over all ranks in a ring, and compares the bytes that this rank sent with
// the formula.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <paceline/paceline.h>

#include <array>
#include <cstdio>
#include <exception>
#include <string>

namespace {

void average(paceline::Communicator& comm) {
  std::array<float, 8> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 10.0F * static_cast<float>(comm.rank()) + static_cast<float>(i);
  }
  std::string text = fmt::format("before {}\n", fmt::join(values, " "));

  const paceline::Algorithm ring = paceline::Algorithm::kRing;
  comm.allreduce<float>(values, paceline::ReduceOp::kMean, {.label = "mean", .algorithm = ring});

  text += fmt::format("after  {}\n", fmt::join(values, " "));
  text += fmt::format("sent {} bytes, by the formula {}\n",
                      comm.traffic().at("mean").payload_bytes_sent,
                      comm.formula_bytes_sent(paceline::Collective::kAllReduce,
                                              paceline::Dtype::kF32, values.size(), ring));
  fmt::print("{}", text);
}

}  // namespace

int main() {
  try {
    paceline::Communicator comm = paceline::init();
    average(comm);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
