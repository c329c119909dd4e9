// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/memory/memory_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "paceline/base/error.h"
#include "paceline/link/link_table.h"
#include "paceline/link/memory/byte_ring.h"
#include "paceline/link/memory/doorbell.h"

namespace paceline::link {
namespace {

/// Bytes moved before the other side hears of them: it copies while this side goes on.
constexpr std::size_t kSlice = 64 << 10;

/// What two ranks share: end 0 belongs to the lower rank. ring[e] carries what end e sends.
struct Channel {
  explicit Channel(std::size_t capacity_bytes)
      : ring{ByteRing(capacity_bytes), ByteRing(capacity_bytes)} {}
  std::array<ByteRing, 2> ring;
  alignas(kLine) std::array<std::atomic<bool>, 2> closed{};
};

/// What all ranks share; lives as long as the last fabric.
struct Hub {
  Hub(int world_size, std::size_t capacity_bytes)
      : world(static_cast<std::size_t>(world_size)), bells(world), channels(world * world) {
    for (std::size_t high = 0; high < world; ++high)
      for (std::size_t low = 0; low < high; ++low)
        channels[low * world + high] = std::make_unique<Channel>(capacity_bytes);
  }
  Channel& between(int a, int b) {
    const auto low = static_cast<std::size_t>(std::min(a, b));
    const auto high = static_cast<std::size_t>(std::max(a, b));
    return *channels[low * world + high];
  }
  Doorbell& bell(int rank) { return bells[static_cast<std::size_t>(rank)]; }

  const std::size_t world;
  std::vector<Doorbell> bells;
  std::vector<std::unique_ptr<Channel>> channels;
};

class MemoryLink final : public Link {
 public:
  MemoryLink(Hub& hub, int rank, int peer)
      : closed_here_(hub.between(rank, peer).closed[rank < peer ? 0 : 1]),
        closed_there_(hub.between(rank, peer).closed[rank < peer ? 1 : 0]),
        out_(hub.between(rank, peer).ring[rank < peer ? 0 : 1]),
        in_(hub.between(rank, peer).ring[rank < peer ? 1 : 0]),
        own_bell_(hub.bell(rank)),
        peer_bell_(hub.bell(peer)) {}

  std::size_t try_send(std::span<const std::span<const std::byte>> parts) override {
    throw_if_closed_here();
    if (closed_there_.load(std::memory_order_acquire)) throw LinkClosed("closed by the peer");
    std::size_t sent = 0;
    std::size_t unpublished = 0;
    for (const std::span<const std::byte> part : parts) {
      const std::size_t count = write(part, unpublished);
      sent += count;
      if (count < part.size()) break;
    }
    if (unpublished != 0) publish();
    return sent;
  }

  std::size_t try_recv(std::span<std::byte> into) override {
    throw_if_closed_here();
    const bool closed = closed_there_.load(std::memory_order_acquire);  // before the last look
    std::size_t got = 0;
    while (got < into.size()) {
      const std::size_t count = in_.read(into.subspan(got, std::min(into.size() - got, kSlice)));
      if (count == 0) break;
      got += count;
      in_.release();
      peer_bell_.ring();
    }
    if (got == 0 && closed && !into.empty()) throw LinkClosed("closed by the peer");
    return got;
  }

  void close() noexcept override {
    if (closed_here_.exchange(true, std::memory_order_seq_cst)) return;
    own_bell_.ring();
    peer_bell_.ring();
  }

  /// Whether `interest` may move: looked at between announcing a sleep and sleeping.
  [[nodiscard]] bool may_move(const Interest& interest) const noexcept {
    if (!interest.send && !interest.recv) return false;
    return closed_here_.load(std::memory_order_seq_cst) ||
           closed_there_.load(std::memory_order_seq_cst) || (interest.recv && in_.has_bytes()) ||
           (interest.send && out_.has_room());
  }

 private:
  void throw_if_closed_here() const {
    if (closed_here_.load(std::memory_order_acquire)) throw LinkClosed("closed here");
  }
  /// Takes a prefix of `part`, and publishes whenever a slice is full. @return its length.
  std::size_t write(std::span<const std::byte> part, std::size_t& unpublished) noexcept {
    std::size_t written = 0;
    while (written < part.size()) {
      const std::size_t most = std::min(part.size() - written, kSlice);
      const std::size_t count = out_.write(part.subspan(written, most));
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
    out_.publish();
    peer_bell_.ring();
  }

  std::atomic<bool>& closed_here_;
  std::atomic<bool>& closed_there_;
  ByteRing& out_;
  ByteRing& in_;
  Doorbell& own_bell_;
  Doorbell& peer_bell_;
};

class MemoryFabric final : public Fabric {
 public:
  MemoryFabric(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), bell_(hub_->bell(rank)) {
    for (int peer = 0; peer < static_cast<int>(hub_->world); ++peer)
      links_.add(peer == rank ? nullptr : std::make_unique<MemoryLink>(*hub_, rank, peer));
  }
  ~MemoryFabric() override { MemoryFabric::close(); }

  Link& to(int peer) override { return links_.at(peer); }

  void wait(std::span<const Interest> interests, Deadline deadline) override {
    for (const Interest& interest : interests) (void)links_.at(interest.peer);
    const auto ready = [&] {
      return std::any_of(interests.begin(), interests.end(), [&](const Interest& interest) {
        return links_.at(interest.peer).may_move(interest);
      });
    };
    bell_.sleep_until(ready, deadline);
  }

  void wake() noexcept override { bell_.wake(); }

  void close() noexcept override { links_.close(); }

  bool worth_spinning() const noexcept override { return true; }
  const char* name() const noexcept override { return "memory"; }

 private:
  const std::shared_ptr<Hub> hub_;
  Doorbell& bell_;
  LinkTable<MemoryLink> links_;
};

}  // namespace

std::vector<std::unique_ptr<Fabric>> make_memory_fabrics(int world, MemoryOptions options) {
  if (world < 1) throw UsageError(fmt::format("a world needs at least 1 rank, not {}", world));
  if (options.capacity_bytes == 0) throw UsageError("a memory link needs room for at least 1 byte");
  const auto hub = std::make_shared<Hub>(world, options.capacity_bytes);
  std::vector<std::unique_ptr<Fabric>> fabrics;
  fabrics.reserve(hub->world);
  for (int rank = 0; rank < world; ++rank)
    fabrics.push_back(std::make_unique<MemoryFabric>(hub, rank));
  return fabrics;
}

}  // namespace paceline::link
