// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/shm/shm_fabric.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/link/link_table.h"
#include "paceline/link/memory/ring_link.h"
#include "paceline/link/shm/heap.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "paceline/net/system_error.h"

namespace paceline::link {
namespace {

/// A sleeper looks whether its peers live so often.
constexpr std::chrono::milliseconds kSlice{100};

struct ShmBells {
  void moved() noexcept { waiting->ring_for_bytes(peer); }
  void closed() noexcept {
    waiting->ring(rank);
    waiting->ring(peer);
  }
  Waiting* waiting;
  int rank;
  int peer;
};
using ShmLink = RingLink<ShmBells>;

/// The two rings to a peer, and the link over them.
struct ShmChannel {
  ShmChannel(const Segment& own, const Segment& theirs, const ShmBells& bells)
      : out(own.positions_to(bells.peer), own.ring_to(bells.peer)),
        in(theirs.positions_to(bells.rank), theirs.ring_to(bells.rank)),
        link({.closed_here = own.closed_to(bells.peer),
              .closed_there = theirs.closed_to(bells.rank),
              .out = out,
              .in = in},
             bells) {}

  ByteRing out;
  ByteRing in;
  ShmLink link;
};

std::vector<WaitWords*> words_of(const std::vector<std::shared_ptr<Segment>>& segments) {
  std::vector<WaitWords*> words;
  words.reserve(segments.size());
  for (const auto& segment : segments) words.push_back(&segment->words());
  return words;
}

class ShmWindows final : public Windows {
 public:
  ShmWindows(const ShmParts& parts, Waiting& waiting)
      : segments_(parts.segments),
        waiting_(waiting),
        heap_(std::make_shared<SegmentHeap>(at(parts.rank))) {}

  std::span<std::byte> segment(int rank) const noexcept override { return at(rank)->bytes(); }
  std::span<std::byte> board(int rank) const noexcept override { return at(rank)->board(); }
  void post(int stage, std::uint64_t value) noexcept override { waiting_.post(stage, value); }
  std::uint64_t posted(int rank, int stage) const noexcept override {
    return waiting_.posted(rank, stage);
  }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return heap_->allocate(bytes); }
  std::shared_ptr<const void> keep(int rank) const override { return at(rank); }
  void quarantine() noexcept override { heap_->quarantine(); }

  int owner_of(const std::byte* data, std::size_t bytes) const noexcept override {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    for (std::size_t rank = 0; rank < segments_.size(); ++rank) {
      const auto first = reinterpret_cast<std::uintptr_t>(segments_[rank]->bytes().data());
      const std::size_t size = segments_[rank]->bytes().size();
      const bool overlaps = begin < first ? bytes > first - begin : begin - first < size;
      if (bytes != 0 && overlaps) return static_cast<int>(rank);
    }
    return -1;
  }

 private:
  [[nodiscard]] const std::shared_ptr<Segment>& at(int rank) const noexcept {
    return segments_[static_cast<std::size_t>(rank)];
  }

  const std::vector<std::shared_ptr<Segment>> segments_;
  Waiting& waiting_;
  const std::shared_ptr<SegmentHeap> heap_;
};

class ShmFabric final : public Fabric {
 public:
  explicit ShmFabric(ShmParts parts)
      : lives_(std::move(parts.lives)),
        waiting_(parts.rank, words_of(parts.segments)),
        windows_(parts, waiting_) {
    const Segment& own = *parts.segments[static_cast<std::size_t>(parts.rank)];
    for (int peer = 0; peer < static_cast<int>(parts.segments.size()); ++peer) {
      const Segment& theirs = *parts.segments[static_cast<std::size_t>(peer)];
      const ShmBells bells{.waiting = &waiting_, .rank = parts.rank, .peer = peer};
      channels_.add(peer == parts.rank ? nullptr
                                       : std::make_unique<ShmChannel>(own, theirs, bells));
    }
    for (const net::Fd& life : lives_) looks_.push_back({.fd = &life, .recv = true});
  }
  ~ShmFabric() override { ShmFabric::close(); }

  Link& to(int peer) override { return channels_.at(peer).link; }

  void wait(std::span<const Interest> interests, Deadline deadline) override {
    for (const Interest& interest : interests) check(interest);
    const auto ready = [&] { return may_go_on(interests); };
    for (;;) {
      const Deadline slice = Deadline::earlier(deadline, Deadline::after(kSlice));
      if (waiting_.sleep_until(interests, ready, slice)) return;
      look_after_peers();
      if (deadline.passed()) return;
    }
  }

  void wake() noexcept override { waiting_.wake(); }

  void close() noexcept override {
    channels_.for_each([](ShmChannel& channel) { channel.link.close(); });
  }

  bool worth_spinning() const noexcept override { return true; }
  Windows* windows() noexcept override { return &windows_; }
  const char* name() const noexcept override { return "shm"; }

 private:
  void check(const Interest& interest) const {
    (void)channels_.at(interest.peer);
    if (interest.stage >= Windows::kStages)
      throw UsageError(fmt::format("windows have no stage {}", interest.stage));
  }

  /// The last look of a sleeper. A peer that closed will post no more.
  [[nodiscard]] bool may_go_on(std::span<const Interest> interests) const noexcept {
    bool any = false;
    bool all = true;
    for (const Interest& interest : interests) {
      const ShmLink& link = channels_.at(interest.peer).link;
      if (link.may_move(interest)) return true;
      if (interest.stage < 0) continue;
      any = true;
      if (waiting_.has_posted(interest)) continue;
      if (link.has_closed()) return true;
      all = false;
    }
    return any && all;
  }

  /// A process that is gone has closed its end of the socket, however it died.
  void look_after_peers() {
    if (net::poll(looks_, Deadline::after({})) == 0) return;
    for (std::size_t peer = 0; peer < looks_.size(); ++peer) {
      std::array<std::byte, 64> ignored{};
      if (!looks_[peer].can_recv || !net::try_read(lives_[peer], ignored).closed) continue;
      channels_.at(static_cast<int>(peer)).link.note_peer_gone();
      looks_[peer].recv = false;
    }
  }

  const std::vector<net::Fd> lives_;
  std::vector<net::PollItem> looks_;
  Waiting waiting_;
  ShmWindows windows_;
  LinkTable<ShmChannel> channels_;
};

std::vector<std::shared_ptr<Segment>> create_segments(const SegmentShape& shape) {
  std::vector<std::shared_ptr<Segment>> segments;
  for (int rank = 0; rank < shape.world; ++rank) segments.push_back(Segment::create(shape, rank));
  return segments;
}

/// The segments as `rank` sees them: its own, and mappings of the others.
std::vector<std::shared_ptr<Segment>> map_segments(
    const SegmentShape& shape, int rank, const std::vector<std::shared_ptr<Segment>>& all) {
  std::vector<std::shared_ptr<Segment>> mine = all;
  for (int peer = 0; peer < shape.world; ++peer) {
    auto& segment = mine[static_cast<std::size_t>(peer)];
    if (peer != rank) segment = Segment::map(shape, peer, segment->memory().file());
  }
  return mine;
}

std::vector<ShmParts> make_local_parts(const SegmentShape& shape, ShmMapping mapping) {
  const auto all = create_segments(shape);
  std::vector<ShmParts> parts(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    parts[rank].rank = static_cast<int>(rank);
    parts[rank].segments =
        mapping == ShmMapping::kOnce ? all : map_segments(shape, static_cast<int>(rank), all);
    parts[rank].lives.resize(all.size());
    for (std::size_t peer = 0; peer < rank; ++peer)
      std::tie(parts[rank].lives[peer], parts[peer].lives[rank]) = net::socket_pair();
  }
  return parts;
}

}  // namespace

std::unique_ptr<Fabric> make_shm_fabric(ShmParts parts) {
  const auto rank = static_cast<std::size_t>(parts.rank);
  if (parts.rank < 0 || rank >= parts.segments.size() ||
      parts.lives.size() != parts.segments.size())
    throw UsageError(fmt::format("rank {} is not among {} segments and {} sockets", parts.rank,
                                 parts.segments.size(), parts.lives.size()));
  for (std::size_t peer = 0; peer < parts.segments.size(); ++peer)
    if (!parts.segments[peer] || static_cast<bool>(parts.lives[peer]) == (peer == rank))
      throw UsageError(fmt::format("rank {} lacks a segment or socket of rank {}", rank, peer));
  return std::make_unique<ShmFabric>(std::move(parts));
}

std::vector<std::unique_ptr<Fabric>> make_local_shm_fabrics(int world,
                                                            const LocalShmOptions& options) {
  const SegmentShape shape = segment_shape(world, options.ring_bytes, options.segment_bytes);
  std::vector<std::unique_ptr<Fabric>> fabrics;
  try {
    for (ShmParts& parts : make_local_parts(shape, options.mapping))
      fabrics.push_back(make_shm_fabric(std::move(parts)));
  } catch (const net::SystemError& error) {
    throw OutOfWindowMemory(error.what());
  }
  return fabrics;
}

}  // namespace paceline::link
