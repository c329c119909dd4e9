// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/channel.h"

#include <array>

#include "paceline/net/stream.h"

namespace paceline::store {

bool Outlet::flush(const net::Fd& socket) {
  std::size_t sent = 0;
  bool alive = true;
  while (sent < unsent_.size()) {
    const auto result = net::try_write(socket, std::span<const std::byte>(unsent_).subspan(sent));
    sent += result.bytes;
    alive = !result.closed;
    if (result.closed || result.would_block) break;
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
  return alive;
}

bool Inlet::pull(const net::Fd& socket) {
  constexpr std::size_t kAtOnce = 16 << 10;
  constexpr int kMostReads = 8;  // a talkative rank leaves the others their turn
  std::array<std::byte, kAtOnce> buffer;
  for (int i = 0; i < kMostReads; ++i) {
    const auto result = net::try_read(socket, buffer);
    if (result.closed) return false;
    if (result.would_block) return true;
    opener_.feed(std::span(buffer).first(result.bytes));
    if (result.bytes < buffer.size()) return true;
  }
  return true;
}

}  // namespace paceline::store
