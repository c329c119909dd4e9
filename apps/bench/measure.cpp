// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <thread>

#include "apps/bench/together.h"

namespace paceline::apps {
namespace {

constexpr std::int64_t kSegments = 5;
constexpr double kShareOfCalls = 0.6;      // of the seconds; the rest is the yardsticks'
constexpr double kShareOfYardstick = 0.2;  // each
constexpr double kMostOfClock = 0.02;      // of what is timed
constexpr std::int64_t kMostTimes = 4000;  // kept, in a segment
constexpr std::int64_t kMostRuns = 100'000;
constexpr int kTrials = 3;
constexpr auto kIdleTime = std::chrono::seconds(1);

/// How often what is done in a segment. The same on all ranks.
struct Plan {
  std::int64_t rounds = 1;
  std::int64_t times = 1;  // taken in a round
  std::int64_t calls_per_time = 1;
  std::int64_t roofline_runs = 1;
  std::int64_t copy_runs = 1;
};

using Stamps = std::vector<std::int64_t>;

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return quantile(values, 0.5);
}

class Meter {
 public:
  Meter(Communicator& comm, const Exercise& exercise, const Yardsticks& yardsticks, double seconds)
      : comm_(comm), exercise_(exercise), yardsticks_(yardsticks), seconds_(seconds) {}

  BenchRow run() {
    make_plan();
    BenchRow row{.calls_per_time = plan_.calls_per_time};
    std::vector<double> times;
    for (std::int64_t i = 0; i < kSegments; ++i) {
      const std::vector<double> some = call_times();
      times.insert(times.end(), some.begin(), some.end());
      row.segments.push_back({.us = median_of(some),
                              .roofline_us = yardstick(yardsticks_.roofline, plan_.roofline_runs),
                              .memcpy_us = yardstick(yardsticks_.copy, plan_.copy_runs)});
    }
    std::ranges::sort(times);
    row.repetitions = static_cast<std::int64_t>(times.size());
    row.min_us = times.front();
    row.median_us = quantile(times, 0.5);
    row.p99_us = quantile(times, 0.99);
    row.verified = right_everywhere();
    set_medians(row);
    return row;
  }

 private:
  /// Fresh buffers, one call that does not count if there may be more, then timed ones on end.
  void round(std::int64_t times, std::int64_t calls_per_time, Stamps& stamps) {
    const std::int64_t first = exercise_.most_calls > 1 ? 1 : 0;
    exercise_.prepare();
    comm_.barrier();
    for (std::int64_t i = 0; i < first; ++i) exercise_.call();
    stamps.push_back(now_ns());
    for (std::int64_t t = 0; t < times; ++t) {
      for (std::int64_t i = 0; i < calls_per_time; ++i) exercise_.call();
      stamps.push_back(now_ns());
    }
    check(static_cast<int>(first + times * calls_per_time));
  }

  void check(int calls) {
    const auto problem = exercise_.check(calls);
    if (!problem) return;
    if (right_) std::fputs(fmt::format("{} (after {} calls)\n", *problem, calls).c_str(), stderr);
    right_ = false;
  }

  /// Microseconds of each call, the slowest rank's. Nobody may have left before the last came.
  std::vector<double> slowest(const Stamps& mine, std::int64_t times, std::int64_t calls_per_time) {
    const Stamps all = gather(comm_, mine);
    const auto in_round = static_cast<std::size_t>(times) + 1;
    std::vector<double> result;
    for (std::size_t i = 1; i < mine.size(); ++i) {
      if (i % in_round == 0) continue;  // between two rounds
      std::int64_t longest = 0;
      for (std::size_t at = i; at < all.size(); at += mine.size()) {
        longest = std::max(longest, all[at] - all[at - 1]);
      }
      result.push_back(1e-3 * static_cast<double>(longest) / static_cast<double>(calls_per_time));
    }
    if (exercise_.all_meet) check_meetings(all, mine.size(), in_round);
    return result;
  }

  void check_meetings(const Stamps& all, std::size_t per_rank, std::size_t in_round) {
    for (std::size_t i = 1; i < per_rank; ++i) {
      if (i % in_round == 0) continue;
      std::int64_t last_in = all[i - 1], first_out = all[i];
      for (std::size_t at = i; at < all.size(); at += per_rank) {
        last_in = std::max(last_in, all[at - 1]);
        first_out = std::min(first_out, all[at]);
      }
      if (last_in > first_out) right_ = false;
    }
  }

  std::vector<double> call_times() {
    Stamps stamps;
    for (std::int64_t i = 0; i < plan_.rounds; ++i) {
      round(plan_.times, plan_.calls_per_time, stamps);
    }
    return slowest(stamps, plan_.times, plan_.calls_per_time);
  }

  std::optional<double> yardstick(const std::function<void()>& run, std::int64_t times) {
    if (!run) return std::nullopt;
    run();
    return time_together_us(comm_, run, times);
  }

  /// Microseconds of a call, by a few of them.
  double estimate_us() {
    double best = INFINITY;
    for (int i = 0; i < kTrials; ++i) {
      Stamps stamps;
      const std::int64_t times = std::clamp(exercise_.most_calls - 1, 1, 4);
      round(times, 1, stamps);
      best = std::min(best, median_of(slowest(stamps, times, 1)));
    }
    return std::max(best, 1e-3);
  }

  std::int64_t runs_of(const std::function<void()>& run) {
    if (!run) return 1;
    const double us = std::max(yardstick(run, 1).value_or(1), 1e-3);
    const double runs = 1e6 * seconds_ * kShareOfYardstick / kSegments / us;
    return std::clamp(static_cast<std::int64_t>(runs), std::int64_t{1}, kMostRuns);
  }

  void make_plan() {
    const double call_us = estimate_us();
    const std::int64_t room = std::max(exercise_.most_calls - 1, 1);
    const double per_clock = clock_cost_ns() * 1e-3 / (kMostOfClock * call_us);
    plan_.calls_per_time =
        std::clamp(static_cast<std::int64_t>(std::ceil(per_clock)), std::int64_t{1}, room);
    const double calls = 1e6 * seconds_ * kShareOfCalls / kSegments / call_us;
    const auto times =
        std::clamp(static_cast<std::int64_t>(calls / static_cast<double>(plan_.calls_per_time)),
                   std::int64_t{1}, kMostTimes);
    plan_.times = std::min(times, room / plan_.calls_per_time);
    plan_.rounds = std::max(std::int64_t{1}, times / plan_.times);
    plan_.roofline_runs = runs_of(yardsticks_.roofline);
    plan_.copy_runs = runs_of(yardsticks_.copy);
    std::array<std::int64_t, 5> numbers{plan_.rounds, plan_.times, plan_.calls_per_time,
                                        plan_.roofline_runs, plan_.copy_runs};
    adopt_from_first(comm_, numbers);
    plan_ = {.rounds = numbers[0],
             .times = numbers[1],
             .calls_per_time = numbers[2],
             .roofline_runs = numbers[3],
             .copy_runs = numbers[4]};
  }

  bool right_everywhere() {
    const std::array<std::int64_t, 1> mine{right_ ? 1 : 0};
    return std::ranges::all_of(gather(comm_, mine), [](auto right) { return right == 1; });
  }

  static void set_medians(BenchRow& row) {
    std::vector<double> rooflines, copies;
    for (const BenchSegment& segment : row.segments) {
      if (segment.roofline_us) rooflines.push_back(*segment.roofline_us);
      if (segment.memcpy_us) copies.push_back(*segment.memcpy_us);
    }
    if (!rooflines.empty()) row.roofline_us = median_of(rooflines);
    if (!copies.empty()) row.memcpy_us = median_of(copies);
  }

  Communicator& comm_;
  const Exercise& exercise_;
  const Yardsticks& yardsticks_;
  double seconds_;
  Plan plan_;
  bool right_ = true;
};

}  // namespace

double quantile(const std::vector<double>& sorted, double share) {
  const double place = std::ceil(share * static_cast<double>(sorted.size())) - 1;
  return sorted.at(static_cast<std::size_t>(std::max(place, 0.0)));
}

BenchRow measure(Communicator& comm,
                 const Exercise& exercise,
                 const Yardsticks& yardsticks,
                 double seconds) {
  return Meter(comm, exercise, yardsticks, seconds).run();
}

double idle_share(Communicator& comm) {
  comm.barrier();
  const std::clock_t cpu = std::clock();
  const std::int64_t begin = now_ns();
  if (comm.rank() == 0) std::this_thread::sleep_for(kIdleTime);
  comm.barrier();
  const double used = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  const double share = comm.rank() == 0 ? 0 : 1e9 * used / static_cast<double>(now_ns() - begin);
  std::array<double, 1> largest{share};
  comm.allreduce(std::span<double>(largest), ReduceOp::kMax);
  return largest[0];
}

}  // namespace paceline::apps
