// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How much memory this process may still take. Linux tells too late: by a fault, or by killing.

#include <cstdint>
#include <filesystem>
#include <string>

namespace paceline::net {

/// What the tightest limit leaves.
struct MemoryHeadroom {
  std::uint64_t free_bytes = 0;   ///< caches that the kernel would drop count as free
  std::uint64_t limit_bytes = 0;  ///< the limit itself
  std::string limit;  ///< "the machine's memory", "the memory limit of control group '/jobs/7'"
};

/// The machine's available memory, and the limits of this process's control groups and all their
/// parents, of both versions. `root` is where /proc and /sys lie. What cannot be read sets no
/// limit.
///
/// Cost  A few small files are read.
[[nodiscard]] MemoryHeadroom memory_headroom(const std::filesystem::path& root = "/");

/// All memory of the machine.
[[nodiscard]] std::uint64_t physical_memory_bytes();

/// "64 MiB", "1536 KiB", "17 B": whole numbers, rounded down, of at least two digits if they can.
[[nodiscard]] std::string name_bytes(std::uint64_t bytes);

}  // namespace paceline::net
