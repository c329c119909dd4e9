// SPDX-License-Identifier: Apache-2.0
#pragma once
// A made-up training: ten parameters of four bytes, two steps, times in whole milliseconds.

#include <chrono>
#include <cstdint>
#include <vector>

#include "apps/compare/comparison.h"
#include "paceline/plan/cost.h"

namespace paceline::apps::sample {

inline constexpr std::uint64_t kParameters = 10;
inline constexpr std::uint64_t kModelBytes = 40;
inline constexpr std::uint64_t kOutputBytes = 24;  // of the whole batch
inline constexpr int kSteps = 2;
inline constexpr int kStepMs = 100;  // from one step's begin to the next one's

inline Instant at(int step, double ms) {
  const std::chrono::duration<double, std::milli> since(kStepMs * step + ms);
  return Instant() + std::chrono::duration_cast<Instant::duration>(since);
}

inline ProcessRecord process(int rank, double step_ms) {
  ProcessRecord record{.rank = rank};
  record.facts = {.description = "a sample",
                  .parameters = kParameters,
                  .trainable_bytes = kModelBytes,
                  .tensors = 2,
                  .data_name = "numbers",
                  .samples = 1000,
                  .unit = "numbers",
                  .libtorch = "2.15.0"};
  for (int step = 0; step < kSteps; ++step) {
    record.steps.push_back({.begin = at(step, 0),
                            .backward = at(step, step_ms / 4),
                            .update = at(step, step_ms * 3 / 4),
                            .end = at(step, step_ms),
                            .loss = 2.0 - step});
  }
  return record;
}

inline Measurement single(double step_ms) {
  Measurement one{.contestant = {Mechanism::kSingle, 1}, .count = {1, 1}};
  one.processes.push_back(process(0, step_ms));
  one.processes[0].peak_bytes = {2 * kModelBytes + kOutputBytes};
  return one;
}

/// Copies of 2 ms each way and device; backward lies between them.
inline Measurement dp(int devices, double step_ms) {
  Measurement one{.contestant = {Mechanism::kDp, devices}, .count = {1, 5}};
  one.processes.push_back(process(0, step_ms));
  ProcessRecord& record = one.processes[0];
  const std::uint64_t chunk = kOutputBytes / static_cast<std::uint64_t>(devices);
  record.peak_bytes = {3 * kModelBytes + kOutputBytes + chunk};
  for (int step = 0; step < kSteps; ++step) {
    for (int d = 0; d < devices; ++d) {
      record.ledger.phases.push_back({Phase::kForward, d, at(step, 4), at(step, 10)});
      record.ledger.phases.push_back({Phase::kBackward, d, at(step, 10), at(step, 20)});
      if (d == 0) continue;
      const auto copy = [&](Copy what, int from, int to, std::uint64_t bytes, double begin) {
        record.ledger.copies.push_back(
            {what, from, to, bytes, at(step, begin), at(step, begin + 2)});
      };
      copy(Copy::kReplicate, 0, d, kModelBytes, 1);
      copy(Copy::kScatter, 0, d, 7, 1);
      copy(Copy::kGather, d, 0, chunk, 8);
      copy(Copy::kReduce, d, 0, kModelBytes, 20);
    }
  }
  return one;
}

/// One bucket round a ring, from 8 ms to 12 ms; backward is over at 10 ms. Each message has one
/// header of 56 bytes.
inline Measurement ddp(int world, double step_ms) {
  Measurement all{.contestant = {Mechanism::kDdp, world}, .count = {world, 4 * world}};
  for (int r = 0; r < world; ++r) {
    ProcessRecord record = process(r, step_ms + r);
    record.peak_bytes = {2 * kModelBytes + kOutputBytes / static_cast<std::uint64_t>(world)};
    record.buckets = {{.label = "bucket 0", .count = kParameters, .parameters = {"w", "b"}}};
    const auto sent = plan::formula_bytes_sent(
        Algorithm::kRing, {.rank = r, .world = world, .count = kParameters}, Dtype::kF32);
    const auto messages = static_cast<std::uint64_t>(2 * (world - 1));
    for (int step = 0; step < kSteps; ++step) {
      record.ledger.phases.push_back({Phase::kBackward, 0, at(step, 4), at(step, 10)});
      record.ledger.phases.push_back({Phase::kWait, 0, at(step, 10), at(step, 12)});
      CallRecord call{.label = "bucket 0", .begin = at(step, 8), .end = at(step, 12)};
      call.count = kParameters;
      call.peers.push_back({(r + 1) % world,
                            {.messages_sent = messages,
                             .payload_bytes_sent = sent,
                             .header_bytes_sent = 56 * messages}});
      record.ledger.calls.push_back(call);
      CallRecord other{.what = Collective::kBarrier, .label = "meet"};
      other.peers.push_back({(r + 1) % world, {.messages_sent = 1, .header_bytes_sent = 56}});
      record.ledger.calls.push_back(other);
    }
    all.processes.push_back(std::move(record));
  }
  return all;
}

inline CompareOptions options(std::vector<int> ranks) {
  CompareOptions options;
  options.ranks = std::move(ranks);
  options.steps = kSteps;
  options.batch_size = 12;
  options.learning_rate = 0.1;
  return options;
}

/// One thread, all cores, then DP and DDP on 2 and 3.
inline std::vector<Measurement> measurements() {
  Measurement all_cores = single(40);
  all_cores.contestant.mechanism = Mechanism::kSingleAllCores;
  return {single(60), all_cores, dp(2, 45), ddp(2, 30), dp(3, 42), ddp(3, 28)};
}

}  // namespace paceline::apps::sample
