// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The figures of `paceline sim`: counted from schedules that were executed, with the closed
/// formulas beside them. No text here.

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::apps {

/// A slice that arrived in a step: chunk `chunk` of the receiving rank.
struct Arrival {
  int chunk = 0;
  std::vector<double> buffer;  ///< all of the rank's elements, just after
};

/// The mean of N ranks by a ring; rank r begins with [10r, 10r+1, …].
struct RingReport {
  int ranks = 0;
  std::uint64_t elements = 0;
  std::vector<double> result;                ///< rank 0's
  std::vector<double> expected;              ///< the plain mean: integers added up, one division
  bool matches = false;                      ///< result is expected, element by element, exactly
  bool bits_equal = false;                   ///< every rank has rank 0's bits
  std::vector<std::uint64_t> link_elements;  ///< counted; of the link from rank r to r+1
  std::uint64_t total_elements = 0;          ///< counted
  std::vector<std::uint64_t> link_formula;   ///< 2n - c[r] - c[(r+1) mod N]
  std::uint64_t total_formula = 0;           ///< 2(N-1)n
  std::vector<std::vector<Arrival>> steps;   ///< [step][rank], if asked for
  [[nodiscard]] bool passed() const;
};

enum class Record : std::uint8_t { kNothing, kSteps };

/// Errors  UsageError if ranks or elements are below 1 or above what fits into memory.
[[nodiscard]] RingReport run_ring(int ranks, std::uint64_t elements, Record record);

/// What rank r holds before the ring begins.
[[nodiscard]] std::vector<double> initial_buffer(int rank, std::uint64_t elements);

/// Bytes in multiples of the buffer M.
struct Volume {
  double dp_master = 0;  ///< DataParallel's device 0: sent and received
  double dp_device = 0;  ///< any other device: sent and received
  double ring_link = 0;  ///< one link of the ring
  bool operator==(const Volume&) const = default;
};

struct VolumeRow {
  int ranks = 0;
  Volume counted;
  Volume formula;
};

/// One row per N, counted over a number of elements that each N divides.
[[nodiscard]] std::vector<VolumeRow> run_volumes(std::span<const int> worlds);

}  // namespace paceline::apps
