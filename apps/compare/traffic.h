// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What parameters and gradients cost in bytes: as the ledgers say, and in closed form.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "apps/compare/training_run.h"

namespace paceline::apps {

struct ParticipantBytes {
  std::string name = {};  ///< "device 0", "rank 0"
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  [[nodiscard]] std::uint64_t both() const noexcept { return sent + received; }
};

/// What one participant sent to another.
struct LinkBytes {
  int from = 0;
  int to = 0;
  std::uint64_t bytes = 0;
};

/// Payload of parameters and gradients in one step, counted where it moved.
struct StepTraffic {
  std::vector<ParticipantBytes> participants = {};  ///< one per rank or device; empty if single
  std::vector<LinkBytes> links = {};                ///< those that carried something
  std::vector<std::uint64_t> per_link = {};         ///< DDP: of edge r -> r + 1 mod N
  std::uint64_t scatter_bytes = 0;                  ///< DP: inputs and
  std::uint64_t gather_bytes = 0;                   ///< outputs
  std::uint64_t messages = 0;                       ///< DDP: of all ranks
  std::uint64_t header_bytes = 0;
};

/// The same without measuring.
struct TrafficFormula {
  std::uint64_t model_bytes = 0;                 ///< M
  std::vector<std::uint64_t> participants = {};  ///< sent + received
  std::vector<std::uint64_t> per_link = {};  ///< DDP if all buckets go round the ring, else empty
  std::string text = {};
};

/// The labels of the calls that carry a process's buckets.
[[nodiscard]] std::set<std::string> labels_of(const ProcessRecord& process);

/// Errors  std::logic_error if steps differ in what they moved, or a ledger is not whole.
[[nodiscard]] StepTraffic traffic_of(const Measurement& measurement);

[[nodiscard]] TrafficFormula formula_of(const Measurement& measurement);

/// Sent + received by each rank of N in one step of DDP, in closed form.
[[nodiscard]] std::vector<std::uint64_t> ddp_formula(const std::vector<BucketFacts>& buckets,
                                                     int world);
/// The same, counted by the simulator from the schedules.
[[nodiscard]] std::vector<std::uint64_t> ddp_simulated(const std::vector<BucketFacts>& buckets,
                                                       int world);
/// Sent + received by each device of N in one step of DP, whose model has so many bytes.
[[nodiscard]] std::vector<std::uint64_t> dp_formula(std::uint64_t model_bytes, int world);
[[nodiscard]] std::vector<std::uint64_t> dp_simulated(std::uint64_t model_bytes, int world);

}  // namespace paceline::apps
