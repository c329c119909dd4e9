// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/together.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace paceline::apps {

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double clock_cost_ns() {
  constexpr int kLooks = 1000;
  const std::int64_t begin = now_ns();
  std::int64_t end = begin;
  for (int i = 0; i < kLooks; ++i) end = now_ns();
  return static_cast<double>(end - begin) / kLooks;
}

std::vector<std::int64_t> gather(Communicator& comm, std::span<const std::int64_t> mine) {
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(comm.world_size()));
  comm.allgather(mine, std::span(all));
  return all;
}

void adopt_from_first(Communicator& comm, std::span<std::int64_t> numbers) {
  comm.broadcast(numbers, 0);
}

double time_together_us(Communicator& comm, const std::function<void()>& run, std::int64_t times) {
  comm.barrier();
  std::array<std::int64_t, 2> mine{now_ns(), 0};
  for (std::int64_t i = 0; i < times; ++i) run();
  mine[1] = now_ns();
  const std::vector<std::int64_t> all = gather(comm, mine);
  std::int64_t begin = mine[0], end = mine[1];
  for (std::size_t i = 0; i < all.size(); i += 2) {
    begin = std::min(begin, all[i]);
    end = std::max(end, all[i + 1]);
  }
  return 1e-3 * static_cast<double>(end - begin) / static_cast<double>(times);
}

}  // namespace paceline::apps
