// SPDX-License-Identifier: Apache-2.0
// Blocking all-reduces between ranks that are threads of this process, over memory links and over
// TCP on loopback. Each iteration is one call; the other ranks run along until rank 0 tells them to
// stop.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "paceline/paceline.h"

namespace paceline {
namespace {

// The first element of each sum says whether to go on.
void follow(Communicator comm, std::size_t count) {
  std::vector<float> data(count);
  do {
    data.assign(count, 0.F);
    comm.allreduce(std::span(data), ReduceOp::kMax);
  } while (data[0] == 0.F);
}

void allreduce(benchmark::State& state, LocalLink link) {
  const auto world = static_cast<int>(state.range(0));
  const auto bytes = static_cast<std::size_t>(state.range(1));
  std::vector<Communicator> ranks = make_local_ranks(world, {.link = link});
  std::vector<std::jthread> others;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    others.emplace_back([mine = std::move(ranks[r]), bytes]() mutable {
      follow(std::move(mine), bytes / sizeof(float));
    });
  }
  std::vector<float> data(bytes / sizeof(float), 0.F);
  for (auto _ : state) ranks[0].allreduce(std::span(data), ReduceOp::kMax);
  data[0] = 1.F;
  ranks[0].allreduce(std::span(data), ReduceOp::kMax);
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

void over_memory(benchmark::State& state) { allreduce(state, LocalLink::kMemory); }
void over_tcp(benchmark::State& state) { allreduce(state, LocalLink::kTcp); }

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr int kRepetitions = 9;

BENCHMARK(over_memory)
    ->ArgNames({"ranks", "bytes"})
    ->ArgsProduct({{2}, {4, 4 * kKiB, 64 * kKiB, 1 * kMiB, 25 * kMiB}})
    ->Unit(benchmark::kMicrosecond)
    ->Repetitions(kRepetitions)
    ->ReportAggregatesOnly()  // read the line that ends with _median
    ->UseRealTime();
BENCHMARK(over_tcp)
    ->ArgNames({"ranks", "bytes"})
    ->ArgsProduct({{2}, {4, 4 * kKiB, 64 * kKiB, 1 * kMiB, 25 * kMiB}})
    ->Unit(benchmark::kMicrosecond)
    ->Repetitions(kRepetitions)
    ->ReportAggregatesOnly()  // read the line that ends with _median
    ->UseRealTime();

}  // namespace
}  // namespace paceline

BENCHMARK_MAIN();
