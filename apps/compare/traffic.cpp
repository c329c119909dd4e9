// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "paceline/plan/cost.h"
#include "paceline/sim/count.h"

namespace paceline::apps {
namespace {

using Links = std::map<std::pair<int, int>, std::uint64_t>;

void require_whole(const ProcessRecord& process) {
  if (process.ledger.left_out == 0) return;
  throw std::logic_error(fmt::format("the ledger of process {} left out {} records", process.rank,
                                     process.ledger.left_out));
}

/// What one step moved, if `total` is what `steps` of them did.
std::uint64_t per_step(std::uint64_t total, std::size_t steps) {
  if (total % steps == 0) return total / steps;
  throw std::logic_error(fmt::format("{} steps moved {} bytes: not all the same", steps, total));
}

void add_links(StepTraffic& traffic, const Links& links, std::size_t steps) {
  for (const auto& [ends, total] : links) {
    const std::uint64_t bytes = per_step(total, steps);
    const auto [from, to] = ends;
    traffic.links.push_back({from, to, bytes});
    traffic.participants[static_cast<std::size_t>(from)].sent += bytes;
    traffic.participants[static_cast<std::size_t>(to)].received += bytes;
  }
}

void name_participants(StepTraffic& traffic, const char* kind, int count) {
  for (int i = 0; i < count; ++i) {
    traffic.participants.push_back({.name = fmt::format("{} {}", kind, i)});
  }
}

StepTraffic traffic_of_dp(const Measurement& measurement) {
  const ProcessRecord& process = measurement.processes.front();
  const std::size_t steps = process.steps.size();
  StepTraffic traffic;
  name_participants(traffic, "device", measurement.contestant.ranks);
  Links links;
  std::uint64_t scattered = 0;
  std::uint64_t gathered = 0;
  for (const CopyRecord& copy : process.ledger.copies) {
    if (copy.what == Copy::kScatter) scattered += copy.bytes;
    if (copy.what == Copy::kGather) gathered += copy.bytes;
    if (copy.what == Copy::kReplicate || copy.what == Copy::kReduce) {
      links[{copy.from, copy.to}] += copy.bytes;
    }
  }
  add_links(traffic, links, steps);
  traffic.scatter_bytes = per_step(scattered, steps);
  traffic.gather_bytes = per_step(gathered, steps);
  return traffic;
}

StepTraffic traffic_of_ddp(const Measurement& measurement) {
  const int world = measurement.contestant.ranks;
  const std::size_t steps = measurement.processes.front().steps.size();
  StepTraffic traffic;
  name_participants(traffic, "rank", world);
  Links links;
  std::uint64_t messages = 0;
  std::uint64_t headers = 0;
  for (const ProcessRecord& process : measurement.processes) {
    const std::set<std::string> labels = labels_of(process);
    for (const CallRecord& call : process.ledger.calls) {
      if (!labels.contains(call.label)) continue;
      for (const PeerTraffic& peer : call.peers) {
        messages += peer.traffic.messages_sent;
        headers += peer.traffic.header_bytes_sent;
        const std::uint64_t bytes = peer.traffic.payload_bytes_sent;
        if (bytes != 0) links[{process.rank, peer.peer}] += bytes;
        const std::uint64_t read = peer.traffic.payload_bytes_read;
        if (read != 0) links[{peer.peer, process.rank}] += read;
      }
    }
  }
  add_links(traffic, links, steps);
  traffic.messages = per_step(messages, steps);
  traffic.header_bytes = per_step(headers, steps);
  for (int r = 0; r < world; ++r) {
    const auto found = links.find({r, (r + 1) % world});
    traffic.per_link.push_back(found == links.end() ? 0 : per_step(found->second, steps));
  }
  return traffic;
}

bool all_by(Algorithm algorithm, const std::vector<BucketFacts>& buckets) {
  return std::ranges::all_of(
      buckets, [=](const BucketFacts& bucket) { return bucket.algorithm == algorithm; });
}

bool all_ring(const std::vector<BucketFacts>& buckets) { return all_by(Algorithm::kRing, buckets); }

/// What leaves `rank`: sent, written into the others' memory, or read there by them.
std::uint64_t sent_by(const BucketFacts& bucket, int rank, int world) {
  const std::uint64_t sent = plan::formula_bytes_sent(
      bucket.algorithm, {.rank = rank, .world = world, .count = bucket.count}, bucket.dtype);
  if (bucket.algorithm != Algorithm::kDirect) return sent;
  const Range own = plan::chunk(bucket.count, world, rank);
  return sent + (bucket.count - own.size()) * size_of(bucket.dtype);
}

/// A ring's rank receives what its left neighbour sends; elsewhere both directions are alike.
std::uint64_t received_by(const BucketFacts& bucket, int rank, int world) {
  const int like = bucket.algorithm == Algorithm::kRing ? (rank + world - 1) % world : rank;
  return sent_by(bucket, like, world);
}

std::vector<std::uint64_t> both_ways(const std::vector<sim::LinkTraffic>& links, int world) {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(world));
  for (const sim::LinkTraffic& link : links) {
    bytes[static_cast<std::size_t>(link.from)] += link.bytes;
    bytes[static_cast<std::size_t>(link.to)] += link.bytes;
  }
  return bytes;
}

std::string text_of_ddp(const std::vector<BucketFacts>& buckets) {
  if (all_ring(buckets)) return "each ring edge 2(N-1)/N·M, together 2(N-1)·M";
  if (all_by(Algorithm::kDirect, buckets)) {
    return "read from and written to the others' memory, together 2(N-1)·M";
  }
  std::set<std::string_view> names;
  for (const BucketFacts& bucket : buckets) names.insert(name_of(bucket.algorithm));
  return fmt::format("the sum over buckets, which go by {}", fmt::join(names, ", "));
}

}  // namespace

std::set<std::string> labels_of(const ProcessRecord& process) {
  std::set<std::string> labels;
  for (const BucketFacts& bucket : process.buckets) labels.insert(bucket.label);
  return labels;
}

StepTraffic traffic_of(const Measurement& measurement) {
  std::ranges::for_each(measurement.processes, require_whole);
  switch (measurement.contestant.mechanism) {
    case Mechanism::kDp: return traffic_of_dp(measurement);
    case Mechanism::kDdp: return traffic_of_ddp(measurement);
    default: return {};
  }
}

TrafficFormula formula_of(const Measurement& measurement) {
  const ProcessRecord& process = measurement.processes.front();
  const int world = measurement.contestant.ranks;
  TrafficFormula formula{.model_bytes = process.facts.trainable_bytes};
  if (measurement.contestant.mechanism == Mechanism::kDp) {
    formula.participants = dp_formula(formula.model_bytes, world);
    formula.text = "device 0 carries 2(N-1)·M, each other device 2·M";
  } else if (measurement.contestant.mechanism == Mechanism::kDdp) {
    formula.participants = ddp_formula(process.buckets, world);
    formula.text = text_of_ddp(process.buckets);
    for (int r = 0; r < world && all_ring(process.buckets); ++r) {
      std::uint64_t bytes = 0;
      for (const BucketFacts& bucket : process.buckets) bytes += sent_by(bucket, r, world);
      formula.per_link.push_back(bytes);
    }
  } else {
    formula.text = "one process sends nothing";
  }
  return formula;
}

std::vector<std::uint64_t> ddp_formula(const std::vector<BucketFacts>& buckets, int world) {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r) {
    for (const BucketFacts& bucket : buckets) {
      bytes[static_cast<std::size_t>(r)] +=
          sent_by(bucket, r, world) + received_by(bucket, r, world);
    }
  }
  return bytes;
}

std::vector<std::uint64_t> ddp_simulated(const std::vector<BucketFacts>& buckets, int world) {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(world));
  for (const BucketFacts& bucket : buckets) {
    const auto links =
        sim::count(bucket.algorithm, {.world = world, .count = bucket.count}, bucket.dtype);
    const std::vector<std::uint64_t> more = both_ways(links, world);
    std::ranges::transform(bytes, more, bytes.begin(), std::plus<>());
  }
  return bytes;
}

std::vector<std::uint64_t> dp_formula(std::uint64_t model_bytes, int world) {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(world), 2 * model_bytes);
  bytes.front() = 2 * static_cast<std::uint64_t>(world - 1) * model_bytes;
  return bytes;
}

// DP's way is the relay: everything to device 0, and back from there.
std::vector<std::uint64_t> dp_simulated(std::uint64_t model_bytes, int world) {
  return both_ways(
      sim::count(Algorithm::kRelay, {.world = world, .count = model_bytes}, Dtype::kU8), world);
}

}  // namespace paceline::apps
