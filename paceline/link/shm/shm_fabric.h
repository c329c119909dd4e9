// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Links and windows in memory that ranks of one host share.

#include <cstddef>
#include <memory>
#include <vector>

#include "paceline/link/link.h"
#include "paceline/link/shm/segment.h"
#include "paceline/net/fd.h"

namespace paceline::link {

struct ShmOptions {
  std::size_t ring_bytes = 64 << 10;  ///< in flight per link and direction; 1 B to 1 GiB
  /// Address space of one rank's segment, of which only what is used becomes memory. 0: as much as
  /// the machine has memory.
  std::size_t segment_bytes = 0;
};

/// What a fabric is made of.
struct ShmParts {
  int rank = 0;
  std::vector<std::shared_ptr<Segment>> segments = {};  ///< [world], as this rank maps them
  std::vector<net::Fd> lives =
      {};  ///< [world] sockets that end with the peer; the own one is empty
};

/// Errors  UsageError if a segment or a socket is missing.
[[nodiscard]] std::unique_ptr<Fabric> make_shm_fabric(ShmParts parts);

/// How ranks that are threads of one process map the segments.
enum class ShmMapping : std::uint8_t {
  kEach,  ///< each for itself, as processes do: addresses differ from rank to rank
  kOnce   ///< all together: ThreadSanitizer knows memory by its address, and so sees the protocol
};

#if defined(__SANITIZE_THREAD__)
inline constexpr ShmMapping kLocalShmMapping = ShmMapping::kOnce;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr ShmMapping kLocalShmMapping = ShmMapping::kOnce;
#else
inline constexpr ShmMapping kLocalShmMapping = ShmMapping::kEach;
#endif
#else
inline constexpr ShmMapping kLocalShmMapping = ShmMapping::kEach;
#endif

struct LocalShmOptions {
  std::size_t ring_bytes = ShmOptions{}.ring_bytes;
  std::size_t segment_bytes = std::size_t{1} << 30;
  ShmMapping mapping = kLocalShmMapping;
};

/// One fabric per rank, all joined, for threads of this process. A fabric that is closed or
/// destroyed closes its links.
///
/// Errors  UsageError if world is not 1 to kMostShmRanks, or ring_bytes does not fit;
///         OutOfWindowMemory if there is no memory for heads, rings and boards.
[[nodiscard]] std::vector<std::unique_ptr<Fabric>> make_local_shm_fabrics(
    int world, const LocalShmOptions& options = {});

}  // namespace paceline::link
