// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the hub says: the texts of its verdicts, and nothing else.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::store {

/// "rank 1", "ranks 0, 2".
[[nodiscard]] std::string name_ranks(std::span<const int> ranks);

/// "host 1", "hosts 1, 3".
[[nodiscard]] std::string name_hosts(std::span<const int> hosts);

/// "100 ms", "30 s", "5 min".
[[nodiscard]] std::string name_duration(std::chrono::milliseconds duration);

/// One descriptor and who holds it.
struct Variant {
  std::uint64_t hash = 0;
  std::string text;
  std::vector<int> ranks;
};

/// "allreduce #17 differs between ranks: ranks 0, 2: …; rank 1: …".
[[nodiscard]] std::string mismatch_text(std::uint64_t sequence, std::span<const Variant> variants);

/// "rank 2 has issued 15 calls, last allreduce f32[4] sum".
[[nodiscard]] std::string progress_text(int rank, std::uint64_t issued, std::string_view last);

/// "rank 1 has not been heard of for 30 s: stopped, or its host is lost".
[[nodiscard]] std::string silence_text(std::span<const int> ranks, std::chrono::milliseconds limit);

}  // namespace paceline::store
