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
#include "paceline/link/memory/ring_link.h"

namespace paceline::link {
namespace {

/// What two ranks share: end 0 belongs to the lower rank. ring[e] carries what end e sends.
struct Channel {
  explicit Channel(std::size_t capacity_bytes)
      : ring{ByteRing(capacity_bytes), ByteRing(capacity_bytes)} {}
  std::array<ByteRing, 2> ring;
  alignas(kLine) std::array<std::atomic<std::uint32_t>, 2> closed{};
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

struct MemoryBells {
  void moved() noexcept { peer.ring(); }
  void closed() noexcept {
    own.ring();
    peer.ring();
  }
  Doorbell& own;
  Doorbell& peer;
};
using MemoryLink = RingLink<MemoryBells>;

std::unique_ptr<MemoryLink> make_link(Hub& hub, int rank, int peer) {
  Channel& channel = hub.between(rank, peer);
  const std::size_t here = rank < peer ? 0 : 1;
  const std::size_t there = 1 - here;
  return std::make_unique<MemoryLink>(RingEnds{.closed_here = channel.closed[here],
                                               .closed_there = channel.closed[there],
                                               .out = channel.ring[here],
                                               .in = channel.ring[there]},
                                      MemoryBells{.own = hub.bell(rank), .peer = hub.bell(peer)});
}

class MemoryFabric final : public Fabric {
 public:
  MemoryFabric(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), bell_(hub_->bell(rank)) {
    for (int peer = 0; peer < static_cast<int>(hub_->world); ++peer)
      links_.add(peer == rank ? nullptr : make_link(*hub_, rank, peer));
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
    (void)bell_.sleep_until(ready, deadline);
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
