// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Times the same work with the ledgers off and on, in turns, so that both see the same machine.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline::bench {

struct Job {
  std::function<void()> run;    ///< the same collectives on every rank
  std::function<void()> start;  ///< the ledgers
  std::function<void()> take;
  int runs = 1;  ///< that are timed together
};

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Seconds per run.
inline double timed(Communicator& comm, const Job& job) {
  comm.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < job.runs; ++i) job.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / job.runs;
}

/// Rank 0 prints the medians of `rounds` rounds and the median of their ratios. Every rank calls
/// it.
inline void off_and_on(Communicator& comm, const std::string& name, const Job& job, int rounds) {
  std::vector<double> off, on, ratio;
  (void)timed(comm, job);  // warms up
  for (int round = 0; round < rounds; ++round) {
    for (const bool with : {round % 2 == 0, round % 2 != 0}) {
      if (with) job.start();
      (with ? on : off).push_back(timed(comm, job));
      if (with) job.take();
    }
    ratio.push_back(on.back() / off.back());
  }
  if (comm.rank() != 0) return;
  std::printf("%-32s off %10.3f us   on %10.3f us   on/off %.3f\n", name.c_str(), median(off) * 1e6,
              median(on) * 1e6, median(ratio));
}

}  // namespace paceline::bench
