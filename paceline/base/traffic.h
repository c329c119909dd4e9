// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The ledger's record: what crossed the links of one rank, counted where it crossed.

#include <cstdint>

namespace paceline {

/// Messages and bytes of one rank. Payload and headers are counted apart. What a rank writes into
/// another rank's memory counts as sent, what it reads there as received.
struct Traffic {
  std::uint64_t calls = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t payload_bytes_sent = 0;
  std::uint64_t payload_bytes_received = 0;
  std::uint64_t payload_bytes_read = 0;  ///< of those received: read in another rank's memory
  std::uint64_t header_bytes_sent = 0;
  std::uint64_t header_bytes_received = 0;

  /// Payload that this rank itself moved: nobody else counts it.
  [[nodiscard]] std::uint64_t payload_bytes_moved() const noexcept {
    return payload_bytes_sent + payload_bytes_read;
  }

  bool operator==(const Traffic&) const = default;
  Traffic& operator+=(const Traffic& other) noexcept {
    calls += other.calls;
    messages_sent += other.messages_sent;
    messages_received += other.messages_received;
    payload_bytes_sent += other.payload_bytes_sent;
    payload_bytes_received += other.payload_bytes_received;
    payload_bytes_read += other.payload_bytes_read;
    header_bytes_sent += other.header_bytes_sent;
    header_bytes_received += other.header_bytes_received;
    return *this;
  }
};

}  // namespace paceline
