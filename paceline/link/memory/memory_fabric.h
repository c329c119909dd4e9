// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Links between threads of one process: bounded lock-free byte rings, one per direction.

#include <cstddef>
#include <memory>
#include <vector>

#include "paceline/link/link.h"

namespace paceline::link {

struct MemoryOptions {
  std::size_t capacity_bytes = 1 << 20;  ///< bytes in flight per link and direction; at least 1
};

/// One fabric per rank, all joined. A fabric that is closed or destroyed closes its links, so peers
/// see LinkClosed after the bytes that were already sent.
///
/// Errors  UsageError if world < 1 or capacity_bytes is 0.
[[nodiscard]] std::vector<std::unique_ptr<Fabric>> make_memory_fabrics(int world,
                                                                       MemoryOptions options = {});

}  // namespace paceline::link
