// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What a bench repeats, on one rank.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "apps/bench/options.h"
#include "paceline/comm/communicator.h"

namespace paceline::apps {

/// Memory of a bench; it goes back with the last copy.
struct BenchBuffer {
  std::shared_ptr<std::byte> data = {};
  std::size_t bytes = 0;
  [[nodiscard]] std::span<std::byte> span() const { return {data.get(), bytes}; }
};

/// Of the communicator or ordinary, aligned to 64 bytes either way, its pages touched.
///
/// Errors  As Engine::allocate().
[[nodiscard]] BenchBuffer allocate(Communicator& comm, BenchMemory memory, std::size_t bytes);

/// One call and what belongs to it. All ranks do the same at the same time.
struct Exercise {
  std::function<void()> prepare = [] {};  ///< the buffers as before a first call
  std::function<void()> call = {};
  /// What is wrong after `calls` calls since prepare(), the last one's result and thereby, where a
  /// call works on its predecessor's result, all of them.
  std::function<std::optional<std::string>(int calls)> check = [](int) { return std::nullopt; };
  int most_calls = 1;     ///< from one prepare() to the next
  bool all_meet = false;  ///< no rank may leave a call before all have come
  BenchBuffer in = {};
  BenchBuffer out = {};  ///< the same memory as `in` where a call works in place
};

/// A collective on `bytes`, the whole buffer's; in place where the collective is.
[[nodiscard]] Exercise make_collective(Communicator& comm,
                                       const BenchOptions& options,
                                       std::uint64_t bytes);

}  // namespace paceline::apps
