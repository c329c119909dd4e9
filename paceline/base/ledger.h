// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The ledger: which bytes moved where, for what, and when. comm writes down calls, parallel writes
/// down copies between devices and phases of a step.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/traffic.h"
#include "paceline/base/types.h"

namespace paceline {

/// What one call moved between this rank and one peer.
struct PeerTraffic {
  int peer = -1;
  Traffic traffic;  ///< its `calls` stays 0
};

/// One collective on this rank, from the moment it was issued to its end, good or bad.
struct CallRecord {
  std::uint64_t sequence = 0;
  Collective what = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  ReduceOp op = ReduceOp::kSum;
  Dtype dtype = Dtype::kF32;
  int root = 0;
  std::uint64_t count = 0;  ///< elements
  std::string label = {};   ///< DDP: which bucket
  std::chrono::steady_clock::time_point begin{};
  std::chrono::steady_clock::time_point end{};
  std::vector<PeerTraffic> peers = {};  ///< those that something moved to or from, in order of rank
};

/// Why bytes move between the devices of DataParallel.
enum class Copy : std::uint8_t {
  kReplicate,  ///< trainable parameters, to the replicas
  kScatter,
  kGather,
  kReduce,  ///< their gradients, to device 0
  kState    ///< frozen parameters and buffers, to the replicas
};
[[nodiscard]] std::string_view name_of(Copy what) noexcept;

/// Bytes that went from one device to another; devices are places in DataParallel's list.
struct CopyRecord {
  Copy what = Copy::kReplicate;
  int from = 0;
  int to = 0;
  std::uint64_t bytes = 0;
  std::chrono::steady_clock::time_point begin{};
  std::chrono::steady_clock::time_point end{};
};

/// What a device of DataParallel, or a rank, does in a step.
enum class Phase : std::uint8_t {
  kForward,
  kBackward,  ///< computing gradients; not the wait for buckets after it
  kWait       ///< backward is over, buckets are still on their way
};
[[nodiscard]] std::string_view name_of(Phase what) noexcept;

struct PhaseRecord {
  Phase what = Phase::kForward;
  int device = 0;  ///< DataParallel's; 0 on a rank
  std::chrono::steady_clock::time_point begin{};
  std::chrono::steady_clock::time_point end{};
};

/// What was written down between start and take. Times are of this machine's steady clock, which
/// all processes of one host share.
struct Ledger {
  std::vector<CallRecord> calls;
  std::vector<CopyRecord> copies;
  std::vector<PhaseRecord> phases;
  std::uint64_t left_out = 0;  ///< records beyond the capacity
};

/// Records of one kind that a ledger keeps before it only counts them.
inline constexpr std::size_t kLedgerCapacity = std::size_t{1} << 16;

}  // namespace paceline
