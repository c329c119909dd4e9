// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A link over two byte rings, wherever they lie.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "paceline/link/link.h"
#include "paceline/link/memory/byte_ring.h"

namespace paceline::link {

/// What the two ends of a link share, besides the rings' memory; outlives them. Each end closes
/// with a flag of its own.
struct RingEnds {
  std::atomic<std::uint32_t>& closed_here;
  std::atomic<std::uint32_t>& closed_there;
  ByteRing& out;
  ByteRing& in;
};

/// `Bells` has moved(): bytes were moved, so the peer may go on; and closed(): either side may
/// sleep and has to learn of it.
template <class Bells>
class RingLink final : public Link {
 public:
  RingLink(RingEnds ends, Bells bells) : ends_(ends), bells_(std::move(bells)) {}

  std::size_t try_send(std::span<const std::span<const std::byte>> parts) override {
    throw_if_closed_here();
    if (peer_has_closed(std::memory_order_acquire)) throw LinkClosed("closed by the peer");
    std::size_t sent = 0;
    std::size_t unpublished = 0;
    for (const std::span<const std::byte> part : parts) {
      const std::size_t count = write(part, unpublished);
      sent += count;
      if (count < part.size()) break;
    }
    if (unpublished != 0) publish();
    if (sent == 0) throw_if_broken(ends_.out);
    return sent;
  }

  std::size_t try_recv(std::span<std::byte> into) override {
    throw_if_closed_here();
    const bool closed = peer_has_closed(std::memory_order_acquire);  // before the last look
    std::size_t got = 0;
    while (got < into.size()) {
      const std::size_t most = std::min(into.size() - got, kSlice);
      const std::size_t count = ends_.in.read(into.subspan(got, most));
      if (count == 0) break;
      got += count;
      ends_.in.release();
      bells_.moved();
    }
    if (got != 0 || into.empty()) return got;
    throw_if_broken(ends_.in);
    if (closed) throw LinkClosed("closed by the peer");
    return 0;
  }

  void close() noexcept override {
    if (ends_.closed_here.exchange(1, std::memory_order_seq_cst) == 0) bells_.closed();
  }

  /// Says that the peer is gone without having closed.
  void note_peer_gone() noexcept { peer_gone_.store(true, std::memory_order_seq_cst); }

  /// Whether either side has closed. This and may_move() are looked at between announcing a sleep
  /// and sleeping.
  [[nodiscard]] bool has_closed() const noexcept {
    return ends_.closed_here.load(std::memory_order_seq_cst) != 0 ||
           peer_has_closed(std::memory_order_seq_cst);
  }
  /// Whether bytes of `interest` may move, or trying tells that they never will.
  [[nodiscard]] bool may_move(const Interest& interest) const noexcept {
    if (!interest.send && !interest.recv) return false;
    return has_closed() || (interest.recv && ends_.in.has_bytes()) ||
           (interest.send && ends_.out.has_room());
  }

 private:
  /// Bytes moved before the other side hears of them: it copies while this side goes on.
  static constexpr std::size_t kSlice = 64 << 10;

  [[nodiscard]] bool peer_has_closed(std::memory_order order) const noexcept {
    return ends_.closed_there.load(order) != 0 || peer_gone_.load(order);
  }
  void throw_if_closed_here() const {
    if (ends_.closed_here.load(std::memory_order_acquire) != 0) throw LinkClosed("closed here");
  }
  static void throw_if_broken(const ByteRing& ring) {
    if (ring.is_broken()) throw LinkClosed("broken: the peer shows a place that cannot be");
  }
  /// Takes a prefix of `part`, and publishes whenever a slice is full. @return its length.
  std::size_t write(std::span<const std::byte> part, std::size_t& unpublished) noexcept {
    std::size_t written = 0;
    while (written < part.size()) {
      const std::size_t most = std::min(part.size() - written, kSlice);
      const std::size_t count = ends_.out.write(part.subspan(written, most));
      if (count == 0) break;
      written += count;
      unpublished += count;
      if (unpublished < kSlice) continue;
      publish();
      unpublished = 0;
    }
    return written;
  }
  void publish() noexcept {
    ends_.out.publish();
    bells_.moved();
  }

  const RingEnds ends_;
  Bells bells_;
  std::atomic<bool> peer_gone_{false};
};

}  // namespace paceline::link
