// SPDX-License-Identifier: Apache-2.0
// Blocking all-reduces between ranks that are threads of this process, over memory links and over
// TCP on loopback. Each iteration is one call; the other ranks run along until rank 0 tells them to
// stop.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "paceline/comm/context.h"
#include "paceline/link/tcp/tcp_fabric.h"
#include "paceline/net/socket.h"
#include "paceline/paceline.h"

namespace paceline {
namespace {

std::vector<Communicator> memory_ranks(int world) { return make_local_ranks(world); }

std::vector<Communicator> tcp_ranks(int world) {
  const auto n = static_cast<std::size_t>(world);
  std::vector<std::vector<net::Fd>> sockets(n);
  for (auto& row : sockets) row.resize(n);
  const net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      const Deadline soon = Deadline::after(std::chrono::seconds(10));
      sockets[a][b] = net::connect_tcp("127.0.0.1", net::local_port(listener), soon);
      sockets[b][a] = net::accept(listener, soon);
    }
  }
  auto controls = store::make_memory_controls(world);
  std::vector<Communicator> ranks;
  for (std::size_t r = 0; r < n; ++r) {
    ContextOptions options{.rank = static_cast<int>(r), .world = world, .generation = 1};
    options.fabric = link::make_tcp_fabric(static_cast<int>(r), std::move(sockets[r]));
    options.control = std::move(controls[r]);
    ranks.emplace_back(std::make_shared<Context>(std::move(options)));
  }
  return ranks;
}

// The first element of each sum says whether to go on.
void follow(Communicator comm, std::size_t count) {
  std::vector<float> data(count);
  do {
    data.assign(count, 0.F);
    comm.allreduce(std::span(data), ReduceOp::kMax);
  } while (data[0] == 0.F);
}

void allreduce(benchmark::State& state, std::vector<Communicator> (*make)(int)) {
  const auto world = static_cast<int>(state.range(0));
  const auto bytes = static_cast<std::size_t>(state.range(1));
  std::vector<Communicator> ranks = make(world);
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

void over_memory(benchmark::State& state) { allreduce(state, memory_ranks); }
void over_tcp(benchmark::State& state) { allreduce(state, tcp_ranks); }

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

BENCHMARK(over_memory)
    ->ArgNames({"ranks", "bytes"})
    ->ArgsProduct({{2}, {4, 4 * kKiB, 64 * kKiB, 1 * kMiB, 25 * kMiB}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK(over_tcp)
    ->ArgNames({"ranks", "bytes"})
    ->ArgsProduct({{2}, {4, 4 * kKiB, 64 * kKiB, 1 * kMiB, 25 * kMiB}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace
}  // namespace paceline

BENCHMARK_MAIN();
