// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/shm/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <type_traits>

#include "paceline/base/error.h"
#include "paceline/net/memory_limits.h"
#include "paceline/net/system_error.h"

namespace paceline::link {
namespace {

constexpr std::uint64_t kMagic = 0x31304d48534c4350;  // "PCLSHM01"
constexpr std::size_t kMostBytes = std::size_t{16} << 40;
constexpr std::size_t kMostRingBytes = std::size_t{1} << 30;

/// Compared before anything else is believed.
struct Head {
  std::uint64_t magic = kMagic;
  std::uint64_t world = 0, rank = 0, ring_bytes = 0, segment_bytes = 0;
  friend bool operator==(const Head&, const Head&) = default;
};

struct Top {
  alignas(kLine) Head head;
  WaitWords words;
};

struct RingHead {
  RingPositions positions;
  alignas(kLine) std::atomic<std::uint32_t> closed{0};
};

// Fresh memory is zero, and that is how they begin: nobody constructs them.
static_assert(std::is_trivially_destructible_v<Top> && std::is_trivially_destructible_v<RingHead>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

std::size_t up_to(std::size_t unit, std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }

Head head_of(const SegmentShape& shape, int rank) {
  return {.world = static_cast<std::uint64_t>(shape.world),
          .rank = static_cast<std::uint64_t>(rank),
          .ring_bytes = shape.ring_bytes,
          .segment_bytes = shape.segment_bytes};
}

template <class T>
T& placed(std::span<std::byte> bytes, std::size_t offset) noexcept {
  return *std::launder(reinterpret_cast<T*>(bytes.data() + offset));
}

}  // namespace

std::size_t SegmentShape::ring_offset(int peer) const noexcept {
  const std::size_t one = sizeof(RingHead) + up_to(kLine, ring_bytes);
  return up_to(kLine, sizeof(Top)) + static_cast<std::size_t>(peer) * one;
}

std::size_t SegmentShape::board_offset() const noexcept {
  return up_to(net::page_bytes(), ring_offset(world));
}

std::size_t SegmentShape::heap_offset() const noexcept {
  return board_offset() + up_to(net::page_bytes(), Windows::kBoardBytes);
}

SegmentShape segment_shape(int world, std::size_t ring_bytes, std::size_t wanted) {
  if (world < 1 || world > kMostShmRanks)
    throw UsageError(
        fmt::format("shared memory joins 1 to {} ranks, not {}", kMostShmRanks, world));
  if (ring_bytes == 0 || ring_bytes > kMostRingBytes)
    throw UsageError(fmt::format("a link of shared memory holds 1 to {} bytes, not {}",
                                 kMostRingBytes, ring_bytes));
  const std::size_t most = kMostBytes / static_cast<std::size_t>(world);
  if (wanted == 0) wanted = static_cast<std::size_t>(net::physical_memory_bytes());
  SegmentShape shape{.world = world, .ring_bytes = ring_bytes};
  shape.segment_bytes =
      std::max(up_to(net::page_bytes(), std::min(wanted, most)), shape.heap_offset());
  return shape;
}

std::shared_ptr<Segment> Segment::create(const SegmentShape& shape, int rank) {
  auto memory =
      net::SharedMemory::create(fmt::format("paceline-rank-{}", rank), shape.segment_bytes);
  memory.commit(0, shape.heap_offset());
  placed<Top>(memory.bytes(), 0).head = head_of(shape, rank);
  return std::shared_ptr<Segment>(new Segment(shape, std::move(memory)));
}

std::shared_ptr<Segment> Segment::map(const SegmentShape& shape, int rank, const net::Fd& file) {
  auto memory = net::SharedMemory::map(file, shape.segment_bytes);
  if (placed<Top>(memory.bytes(), 0).head != head_of(shape, rank))
    throw net::SystemError(EPROTO, fmt::format("mapping the segment of rank {}", rank),
                           "it is that of another rank, job or version");
  return std::shared_ptr<Segment>(new Segment(shape, std::move(memory)));
}

std::span<std::byte> Segment::board() const noexcept {
  return bytes().subspan(shape_.board_offset(), Windows::kBoardBytes);
}

WaitWords& Segment::words() const noexcept { return placed<Top>(bytes(), 0).words; }

RingPositions& Segment::positions_to(int peer) const noexcept {
  return placed<RingHead>(bytes(), shape_.ring_offset(peer)).positions;
}

std::span<std::byte> Segment::ring_to(int peer) const noexcept {
  return bytes().subspan(shape_.ring_offset(peer) + sizeof(RingHead), shape_.ring_bytes);
}

std::atomic<std::uint32_t>& Segment::closed_to(int peer) const noexcept {
  return placed<RingHead>(bytes(), shape_.ring_offset(peer)).closed;
}

}  // namespace paceline::link
