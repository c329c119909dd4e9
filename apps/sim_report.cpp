// SPDX-License-Identifier: Apache-2.0
#include "apps/sim_report.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/plan/schedule.h"
#include "paceline/sim/execute.h"

namespace paceline::apps {
namespace {

constexpr int kMaxRanks = 2048;
constexpr std::uint64_t kMaxElementsOfAll = std::uint64_t{1} << 24;
constexpr std::uint64_t kMaxElementsToShow = std::uint64_t{1} << 20;  // over all ranks and steps

std::uint64_t as_count(int ranks) { return static_cast<std::uint64_t>(ranks); }

void check_size(int ranks, std::uint64_t elements, Record record) {
  if (ranks < 1 || ranks > kMaxRanks) {
    throw UsageError(fmt::format("--ranks is {}: a ring here has 1 to {} ranks", ranks, kMaxRanks));
  }
  if (elements < 1 || elements > kMaxElementsOfAll / as_count(ranks)) {
    throw UsageError(fmt::format("--elements is {}: {} ranks here can hold 1 to {} elements each",
                                 elements, ranks, kMaxElementsOfAll / as_count(ranks)));
  }
  const std::uint64_t shown = 2 * as_count(ranks) * as_count(ranks) * elements;
  if (record == Record::kSteps && shown > kMaxElementsToShow) {
    throw UsageError(
        fmt::format("--steps would show {} numbers: choose fewer --ranks or --elements", shown));
  }
}

/// Integers added up, one division: nothing here knows about rings.
std::vector<double> plain_mean(int ranks, std::uint64_t elements) {
  std::vector<double> mean;
  for (std::uint64_t e = 0; e < elements; ++e) {
    std::uint64_t sum = 0;
    for (std::uint64_t r = 0; r < as_count(ranks); ++r) sum += 10 * r + e;
    mean.push_back(static_cast<double>(sum) / ranks);
  }
  return mean;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

int chunk_at(const plan::Shape& shape, Range elements) {
  for (int c = 0; c < shape.world; ++c) {
    if (plan::chunk(shape.count, shape.world, c) == elements) return c;
  }
  return -1;
}

/// Collects what each rank holds after each of its receives.
sim::AfterStep recorder(const plan::Shape& shape, std::vector<std::vector<Arrival>>& steps) {
  std::vector<std::size_t> received(as_count(shape.world));
  return [shape, &steps, received](int rank, const plan::Step& step,
                                   std::span<const std::byte> buffer) mutable {
    if (step.kind != plan::Kind::kRecv) return;
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t i = received[r]++;
    if (steps.size() <= i) steps.resize(i + 1, std::vector<Arrival>(as_count(shape.world)));
    Arrival& arrival = steps[i][r];
    arrival.chunk = chunk_at(shape, step.elements);
    arrival.buffer.resize(shape.count);
    std::memcpy(arrival.buffer.data(), buffer.data(), buffer.size());
  };
}

void count_links(const plan::Shape& shape,
                 const std::vector<sim::LinkTraffic>& links,
                 RingReport& report) {
  for (const sim::LinkTraffic& link : links) report.link_elements.push_back(link.elements);
  report.total_elements =
      std::accumulate(report.link_elements.begin(), report.link_elements.end(), std::uint64_t{0});
  const auto c = [&](int r) { return plan::chunk(shape.count, shape.world, r).size(); };
  for (int r = 0; r < shape.world && shape.world > 1; ++r) {
    report.link_formula.push_back(2 * shape.count - c(r) - c(r + 1));
  }
  report.total_formula = 2 * (as_count(shape.world) - 1) * shape.count;
}

/// Bytes that cross the links of `rank`, both ways.
std::uint64_t bytes_at(int rank, const std::vector<sim::LinkTraffic>& links) {
  std::uint64_t bytes = 0;
  for (const sim::LinkTraffic& link : links) {
    if (link.from == rank || link.to == rank) bytes += link.bytes;
  }
  return bytes;
}

/// The one value that all of `values` have.
double common(const std::vector<double>& values, const char* what) {
  for (double value : values) {
    if (value != values[0]) throw std::logic_error(fmt::format("{} differ among ranks", what));
  }
  return values.at(0);
}

Volume count_volume(int ranks) {
  const plan::Shape shape{.world = ranks, .count = 16 * as_count(ranks)};
  const auto m = static_cast<double>(shape.count * sizeof(double));
  std::vector<std::vector<double>> inputs;
  inputs.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) inputs.push_back(initial_buffer(r, shape.count));
  const auto run = [&](Algorithm algorithm) {
    return sim::execute<double>(algorithm, shape, ReduceOp::kSum, inputs).links;
  };
  const auto relay = run(Algorithm::kRelay);
  std::vector<double> devices;
  for (int r = 1; r < ranks; ++r) devices.push_back(static_cast<double>(bytes_at(r, relay)) / m);
  std::vector<double> links;
  for (const auto& link : run(Algorithm::kRing)) {
    links.push_back(static_cast<double>(link.bytes) / m);
  }
  return {.dp_master = static_cast<double>(bytes_at(0, relay)) / m,
          .dp_device = common(devices, "volumes of DP devices"),
          .ring_link = common(links, "volumes of ring links")};
}

}  // namespace

bool RingReport::passed() const {
  return matches && bits_equal && link_elements == link_formula && total_elements == total_formula;
}

std::vector<double> initial_buffer(int rank, std::uint64_t elements) {
  std::vector<double> buffer(elements);
  std::iota(buffer.begin(), buffer.end(), 10.0 * rank);
  return buffer;
}

// In double, every sum here is an exact integer and its division rounds once, as the plain mean's
// does: so both must be equal exactly.
RingReport run_ring(int ranks, std::uint64_t elements, Record record) {
  check_size(ranks, elements, record);
  const plan::Shape shape{.world = ranks, .count = elements};
  std::vector<std::vector<double>> inputs;
  inputs.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) inputs.push_back(initial_buffer(r, elements));
  RingReport report;
  report.ranks = ranks;
  report.elements = elements;
  const auto after_step =
      record == Record::kSteps ? recorder(shape, report.steps) : sim::AfterStep{};
  auto outcome = sim::execute<double>(Algorithm::kRing, shape, ReduceOp::kMean, inputs, after_step);
  report.bits_equal = true;
  for (const auto& result : outcome.results) {
    report.bits_equal = report.bits_equal && same_bits(result, outcome.results[0]);
  }
  report.result = std::move(outcome.results[0]);
  report.expected = plain_mean(ranks, elements);
  report.matches = report.result == report.expected;
  count_links(shape, outcome.links, report);
  return report;
}

std::vector<VolumeRow> run_volumes(std::span<const int> worlds) {
  std::vector<VolumeRow> rows;
  for (int n : worlds) {
    rows.push_back(
        {.ranks = n,
         .counted = count_volume(n),
         .formula = {
             .dp_master = 2.0 * (n - 1), .dp_device = 2.0, .ring_link = 2.0 * (n - 1) / n}});
  }
  return rows;
}

}  // namespace paceline::apps
