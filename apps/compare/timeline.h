// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What happened when, on whose lane, in one step of a run: plain data between those who measure it
/// and those who draw it.

#include <cstdint>
#include <string>
#include <vector>

namespace paceline::apps {

struct TraceSpan {
  /// forward, backward, wait, allreduce, replicate, scatter, gather, reduce or step
  std::string kind;
  std::string label;    ///< for people: "bucket 0"
  double begin_us = 0;  ///< microseconds since the step began
  double end_us = 0;
  std::uint64_t bytes = 0;  ///< that it moved; 0 where it moved none
};

/// One rank or one device. Its spans may overlap: a bucket travels while backward goes on.
struct TraceLane {
  std::string name;
  std::vector<TraceSpan> spans;
};

struct TraceRun {
  std::string name;  ///< "ddp, 2 ranks"
  std::vector<TraceLane> lanes;
};

}  // namespace paceline::apps
