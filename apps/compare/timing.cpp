// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <string>

#include "apps/compare/traffic.h"

namespace paceline::apps {
namespace {

using Interval = std::pair<Instant, Instant>;
using Intervals = std::vector<Interval>;

double ms(Instant begin, Instant end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

/// Sorted, without overlaps.
Intervals merged(Intervals all) {
  std::ranges::sort(all);
  Intervals result;
  for (const Interval& one : all) {
    if (!result.empty() && one.first <= result.back().second) {
      result.back().second = std::max(result.back().second, one.second);
    } else {
      result.push_back(one);
    }
  }
  return result;
}

double length_ms(const Intervals& merged) {
  double sum = 0;
  for (const auto& [begin, end] : merged) sum += ms(begin, end);
  return sum;
}

/// What lies in both; each is merged.
Intervals common(const Intervals& a, const Intervals& b) {
  Intervals result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval both{std::max(a[i].first, b[j].first), std::min(a[i].second, b[j].second)};
    if (both.first < both.second) result.push_back(both);
    (a[i].second < b[j].second ? i : j) += 1;
  }
  return result;
}

/// When parameters or gradients of a process were under way.
Intervals transfers(const ProcessRecord& process) {
  const std::set<std::string> labels = labels_of(process);
  Intervals all;
  for (const CallRecord& call : process.ledger.calls) {
    if (labels.contains(call.label)) all.emplace_back(call.begin, call.end);
  }
  for (const CopyRecord& copy : process.ledger.copies) {
    if (copy.what == Copy::kReplicate || copy.what == Copy::kReduce) {
      all.emplace_back(copy.begin, copy.end);
    }
  }
  return merged(std::move(all));
}

Intervals backwards(const ProcessRecord& process) {
  Intervals all;
  for (const PhaseRecord& phase : process.ledger.phases) {
    if (phase.what == Phase::kBackward) all.emplace_back(phase.begin, phase.end);
  }
  return merged(std::move(all));
}

Instant begin_of(const Measurement& measurement, std::size_t step) {
  Instant begin = Instant::max();
  for (const auto& process : measurement.processes) {
    begin = std::min(begin, process.steps[step].begin);
  }
  return begin;
}

Instant end_of(const Measurement& measurement, std::size_t step) {
  Instant end = Instant::min();
  for (const auto& process : measurement.processes) end = std::max(end, process.steps[step].end);
  return end;
}

/// Draws what lies in a stretch of time.
class Lanes {
 public:
  Lanes(const Measurement& measurement, Instant begin, Instant end)
      : measurement_(measurement), begin_(begin), end_(end) {}

  TraceRun draw() {
    const Contestant& contestant = measurement_.contestant;
    TraceRun run{.name = title_of(contestant), .lanes = {}};
    if (contestant.mechanism == Mechanism::kDp) {
      for (int d = 0; d < contestant.ranks; ++d) {
        run.lanes.push_back({.name = fmt::format("device {}", d), .spans = {}});
      }
      draw_devices(measurement_.processes.front(), run.lanes);
    } else {
      const bool ranks = contestant.mechanism == Mechanism::kDdp;
      for (const ProcessRecord& process : measurement_.processes) {
        const std::string name = ranks ? fmt::format("rank {}", process.rank) : "process";
        run.lanes.push_back({.name = name, .spans = {}});
        draw_process(process, ranks, run.lanes.back());
      }
    }
    for (TraceLane& lane : run.lanes) {
      std::ranges::stable_sort(lane.spans, {}, &TraceSpan::begin_us);
    }
    return run;
  }

 private:
  void draw_devices(const ProcessRecord& process, std::vector<TraceLane>& lanes) const {
    for (const PhaseRecord& phase : process.ledger.phases) {
      add(lanes[static_cast<std::size_t>(phase.device)], name_of(phase.what), "", phase.begin,
          phase.end, 0);
    }
    for (const CopyRecord& copy : process.ledger.copies) {
      const int device = std::max(copy.from, copy.to);  // the one that is not device 0
      add(lanes[static_cast<std::size_t>(device)], name_of(copy.what),
          fmt::format("device {} to {}", copy.from, copy.to), copy.begin, copy.end, copy.bytes);
    }
    for (const StepRecord& step : process.steps) {
      add(lanes.front(), "step", "", step.update, step.end, 0);
    }
  }

  void draw_process(const ProcessRecord& process, bool is_rank, TraceLane& lane) const {
    for (const PhaseRecord& phase : process.ledger.phases) {
      add(lane, name_of(phase.what), "", phase.begin, phase.end, 0);
    }
    for (const CallRecord& call : process.ledger.calls) {
      if (call.what != Collective::kAllReduce) continue;
      std::uint64_t bytes = 0;
      for (const PeerTraffic& peer : call.peers) bytes += peer.traffic.payload_bytes_sent;
      add(lane, "allreduce", call.label, call.begin, call.end, bytes);
    }
    for (const StepRecord& step : process.steps) {
      if (!is_rank) {
        add(lane, "forward", "", step.begin, step.backward, 0);
        add(lane, "backward", "", step.backward, step.update, 0);
      }
      add(lane, "step", "", step.update, step.end, 0);
    }
  }

  void add(TraceLane& lane,
           std::string_view kind,
           const std::string& label,
           Instant begin,
           Instant end,
           std::uint64_t bytes) const {
    if (begin < begin_ || end > end_) return;
    lane.spans.push_back({.kind = std::string(kind),
                          .label = label,
                          .begin_us = 1e3 * ms(begin_, begin),
                          .end_us = 1e3 * ms(begin_, end),
                          .bytes = bytes});
  }

  const Measurement& measurement_;
  Instant begin_;
  Instant end_;
};

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const std::size_t high = std::min(low + 1, values.size() - 1);
    return std::lerp(values[low], values[high], place - static_cast<double>(low));
  };
  return {.median = at(0.5), .p10 = at(0.1), .p90 = at(0.9)};
}

std::vector<double> step_times_ms(const Measurement& measurement) {
  std::vector<double> times;
  for (std::size_t step = 0; step < measurement.processes.front().steps.size(); ++step) {
    times.push_back(ms(begin_of(measurement, step), end_of(measurement, step)));
  }
  return times;
}

std::optional<Communication> communication_of(const Measurement& measurement) {
  Communication sum;
  for (const ProcessRecord& process : measurement.processes) {
    const Intervals moving = transfers(process);
    sum.ms += length_ms(moving);
    sum.hidden_ms += length_ms(common(moving, backwards(process)));
  }
  if (sum.ms == 0) return std::nullopt;
  const auto shares = static_cast<double>(measurement.processes.size() *
                                          measurement.processes.front().steps.size());
  return Communication{.ms = sum.ms / shares, .hidden_ms = sum.hidden_ms / shares};
}

TraceRun timeline_of(const Measurement& measurement) {
  const std::size_t last = measurement.processes.front().steps.size() - 1;
  return Lanes(measurement, begin_of(measurement, 0), end_of(measurement, last)).draw();
}

TraceRun timeline_of_step(const Measurement& measurement, std::size_t step) {
  return Lanes(measurement, begin_of(measurement, step), end_of(measurement, step)).draw();
}

}  // namespace paceline::apps
