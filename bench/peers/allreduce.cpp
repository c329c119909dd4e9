// SPDX-License-Identifier: Apache-2.0
// One rank of the comparison that allreduce.sh makes: times blocking f32 all-reduces, checks every
// result, and prints one JSON line from rank 0.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "paceline/paceline.h"

namespace {

using nlohmann::json;
using Seconds = std::chrono::duration<double>;

double now_s() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Every rank holds rank + 1, so that each element of the sum is N(N+1)/2.
json time_size(paceline::Communicator& comm, std::size_t bytes, int iterations) {
  const auto world = static_cast<float>(comm.world_size());
  std::vector<float> data(bytes / sizeof(float));
  std::vector<double> times;
  for (int i = -3; i < iterations; ++i) {
    std::fill(data.begin(), data.end(), static_cast<float>(comm.rank() + 1));
    comm.barrier();
    const double begin = now_s();
    comm.allreduce(std::span(data), paceline::ReduceOp::kSum);
    if (i >= 0) times.push_back(now_s() - begin);
    const float want = world * (world + 1) / 2;
    if (std::any_of(data.begin(), data.end(), [&](float x) { return x != want; })) {
      throw std::runtime_error("a wrong sum");
    }
  }
  return {{"bytes", bytes}, {"median_us", 1e6 * median(times)}};
}

// Rank 0 comes a second late; the others wait for it and report how much of a core that took.
json idle_share(paceline::Communicator& comm) {
  comm.barrier();
  double share = 0;
  if (comm.rank() == 0) {
    usleep(1'000'000);
    comm.barrier();
  } else {
    const double cpu = cpu_s(), begin = now_s();
    comm.barrier();
    share = (cpu_s() - cpu) / (now_s() - begin);
  }
  comm.allreduce(std::span(&share, 1), paceline::ReduceOp::kMax);
  return share;
}

int run(int argc, char** argv) {
  std::vector<std::size_t> sizes{4096, 1 << 20, 25 << 20};
  int iterations = 15;
  bool idle = false;
  CLI::App app("One rank of bench/peers/allreduce.sh; start it under `paceline run`.");
  app.add_option("--sizes", sizes, "bytes of each buffer")->delimiter(',');
  app.add_option("--iterations", iterations, "timed calls per size")->check(CLI::Range(1, 100000));
  app.add_flag("--idle", idle, "also measure the CPU share of a waiting rank");
  CLI11_PARSE(app, argc, argv);

  paceline::Communicator comm = paceline::init();
  comm.barrier();
  const double ready_at = Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
  json report{{"ranks", comm.world_size()}, {"ready_at", ready_at}, {"rows", json::array()}};
  for (const std::size_t bytes : sizes)
    report["rows"].push_back(time_size(comm, bytes, iterations));
  if (idle) report["idle_share"] = idle_share(comm);
  if (comm.rank() == 0) std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
