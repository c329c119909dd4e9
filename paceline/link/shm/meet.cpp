// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/shm/meet.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "paceline/base/error.h"
#include "paceline/base/little_endian.h"
#include "paceline/net/descriptor_passing.h"
#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "paceline/net/system_error.h"

namespace paceline::link {
namespace {

/// A stranger at the listener may be silent so long.
constexpr std::chrono::milliseconds kStrangerPatience{1000};
constexpr std::size_t kGreetingBytes = sizeof(std::uint32_t) + sizeof(Token);

/// Another rank has stopped: what it says counts, not what follows from it.
struct Stopped : std::runtime_error {
  explicit Stopped(int who) : std::runtime_error(fmt::format("rank {} stopped", who)) {}
};

class ShmMeeter {
 public:
  ShmMeeter(const std::vector<net::Fd>& sockets, const MeetOptions& options)
      : sockets_(sockets), options_(options), world_(static_cast<int>(sockets.size())) {}

  ShmMeeting run() {
    prepare();
    exchange_hellos();
    if (std::string reason = why_not(hellos_); !reason.empty()) return {.reason = reason};
    exchange_verdicts(try_to_join());
    if (std::string reason = why_not(verdicts_); !reason.empty()) return {.reason = reason};
    return {.fabric = make_shm_fabric(std::move(parts_))};
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  const net::Fd& socket_to(int peer) const { return sockets_[index(peer)]; }
  const Hello& own() const { return hellos_[index(options_.rank)]; }

  /// Makes the own segment and the place where higher ranks find it.
  void prepare() {
    hellos_.resize(sockets_.size());
    Hello& hello = hellos_[index(options_.rank)];
    hello = {.wish = options_.wish, .user = net::user_id(), .host = net::host_identity()};
    if (options_.wish == LinkWish::kTcp) return;
    try {
      shape_ = segment_shape(world_, options_.shm.ring_bytes, options_.shm.segment_bytes);
      parts_ = {.rank = options_.rank};
      parts_.segments.resize(sockets_.size());
      parts_.lives.resize(sockets_.size());
      parts_.segments[index(options_.rank)] = Segment::create(shape_, options_.rank);
      hello.segment_bytes = shape_.segment_bytes;
      hello.ring_bytes = shape_.ring_bytes;
      hello.token = net::random_digits();
      const Token name = net::random_digits();
      hello.listener = fmt::format("paceline-shm-{}-{}", net::process_id(),
                                   std::string_view(name.data(), name.size()));
      listener_ = net::listen_unix_abstract(hello.listener);
    } catch (const std::exception& error) {
      hello.trouble = error.what();
    }
  }

  template <std::size_t size>
  void send_to_all(const std::array<std::byte, size>& bytes) const {
    for (int peer = 0; peer < world_; ++peer)
      if (peer != options_.rank)
        over_socket(peer, [&] { net::send_all(socket_to(peer), bytes, options_.deadline); });
  }

  template <std::size_t size>
  std::array<std::byte, size> recv_from(int peer) const {
    std::array<std::byte, size> bytes{};
    over_socket(peer, [&] { net::recv_exactly(socket_to(peer), bytes, options_.deadline); });
    return bytes;
  }

  template <class Move>
  void over_socket(int peer, const Move& move) const {
    try {
      move();
    } catch (const net::TimedOut&) {
      throw failed(CommErrc::kConnectFailed, peer, "was silent for too long");
    } catch (const net::SystemError& error) {
      throw failed(CommErrc::kConnectFailed, peer, fmt::format("went away: {}", error.what()));
    }
  }

  template <class Decode, class Bytes>
  auto heard(int peer, const Decode& decode, const Bytes& bytes) const {
    try {
      return decode(bytes);
    } catch (const std::runtime_error& error) {
      throw failed(CommErrc::kMismatch, peer, fmt::format("is not understood: {}", error.what()));
    }
  }

  CommError failed(CommErrc code, int peer, const std::string& how) const {
    return {code, options_.rank, peer,
            fmt::format("rank {}: rank {} {}, while ranks found out whether they share memory",
                        options_.rank, peer, how)};
  }

  void exchange_hellos() {
    send_to_all(encode(own()));
    for (int peer = 0; peer < world_; ++peer)
      if (peer != options_.rank)
        hellos_[index(peer)] = heard(peer, &decode_hello, recv_from<kHelloBytes>(peer));
  }

  void exchange_verdicts(const Verdict& mine) {
    listener_.reset();
    send_to_all(encode(mine));
    verdicts_.resize(sockets_.size());
    verdicts_[index(options_.rank)] = mine;
    for (int peer = 0; peer < world_; ++peer)
      if (peer != options_.rank)
        verdicts_[index(peer)] = heard(peer, &decode_verdict, recv_from<kVerdictBytes>(peer));
  }

  Verdict try_to_join() {
    try {
      for (int peer = 0; peer < options_.rank; ++peer) dial(peer);
      for (int left = world_ - 1 - options_.rank; left > 0;)
        if (answer_one()) --left;
      for (int peer = 0; peer < options_.rank; ++peer) take_answer(peer);
      return {};
    } catch (const Stopped& stopped) {
      return {.kind = Verdict::Kind::kFollows, .why = stopped.what()};
    } catch (const std::exception& error) {
      return {.kind = Verdict::Kind::kBad, .why = error.what()};
    }
  }

  /// A lower rank's listener takes the connection by itself, so that nobody waits here.
  void dial(int peer) {
    net::Fd life = net::connect_unix_abstract(hellos_[index(peer)].listener, options_.deadline);
    if (net::peer_credentials(life).uid != own().user)
      throw std::runtime_error(fmt::format("another user answers for rank {}", peer));
    introduce(life);
    parts_.lives[index(peer)] = std::move(life);
  }

  /// Takes one connection, of a higher rank or a stranger. @return whether it was a rank's.
  bool answer_one() {
    wait_for_a_caller();
    net::Fd life = net::accept_now(listener_);
    if (!life || net::peer_credentials(life).uid != own().user) return false;
    const Deadline patience =
        Deadline::earlier(options_.deadline, Deadline::after(kStrangerPatience));
    const auto peer = recognise(life, patience);
    if (!peer || *peer <= options_.rank || parts_.lives[index(*peer)]) return false;
    take_segment(*peer, life);
    introduce(life);
    parts_.lives[index(*peer)] = std::move(life);
    return true;
  }

  /// Ranks that have not come yet are watched: one that stopped says so on its connection.
  void wait_for_a_caller() {
    std::vector<net::PollItem> items{{.fd = &listener_, .recv = true}};
    std::vector<int> peers{-1};
    for (int peer = options_.rank + 1; peer < world_; ++peer) {
      if (parts_.lives[index(peer)]) continue;
      items.push_back({.fd = &socket_to(peer), .recv = true});
      peers.push_back(peer);
    }
    if (net::poll(items, options_.deadline) == 0)
      throw std::runtime_error(fmt::format("rank {} did not come for its memory", peers.back()));
    if (items.front().can_recv) return;
    for (std::size_t i = 1; i < items.size(); ++i)
      if (items[i].can_recv) throw Stopped(peers[i]);
  }

  void take_answer(int peer) {
    const net::Fd& life = parts_.lives[index(peer)];
    std::array<net::PollItem, 2> items{
        {{.fd = &life, .recv = true}, {.fd = &socket_to(peer), .recv = true}}};
    if (net::poll(items, options_.deadline) == 0)
      throw std::runtime_error(fmt::format("rank {} did not pass its memory on", peer));
    if (!items.front().can_recv) throw Stopped(peer);
    const auto who = recognise(life, options_.deadline);
    if (!who) throw Stopped(peer);
    if (*who != peer) throw std::runtime_error(fmt::format("a stranger answers for rank {}", peer));
    take_segment(peer, life);
  }

  /// Who we are, the proof, and our segment.
  void introduce(const net::Fd& life) {
    std::array<std::byte, kGreetingBytes> greeting{};
    const auto rank = static_cast<std::uint32_t>(options_.rank);
    store_le<std::uint32_t>(std::span(greeting).first<sizeof rank>(), rank);
    std::ranges::copy(std::as_bytes(std::span(own().token)), greeting.begin() + sizeof rank);
    const auto& segment = parts_.segments[index(options_.rank)];
    net::send_all(life, greeting, options_.deadline);
    net::send_descriptor(life, segment->memory().file(), options_.deadline);
  }

  /// Which rank has proved itself; none if it went away, was silent or is a stranger.
  std::optional<int> recognise(const net::Fd& life, Deadline deadline) const {
    std::array<std::byte, kGreetingBytes> greeting{};
    try {
      net::recv_exactly(life, greeting, deadline);
    } catch (const net::SystemError&) {
      return std::nullopt;
    }
    const auto rank = load_le<std::uint32_t>(std::span(greeting).first<sizeof(std::uint32_t)>());
    if (rank >= hellos_.size()) return std::nullopt;
    const auto token = std::span(greeting).subspan(sizeof rank);
    if (!std::ranges::equal(token, std::as_bytes(std::span(hellos_[rank].token))))
      return std::nullopt;
    return static_cast<int>(rank);
  }

  void take_segment(int peer, const net::Fd& life) {
    const net::Fd file = net::recv_descriptor(life, options_.deadline);
    parts_.segments[index(peer)] = Segment::map(shape_, peer, file);
  }

  const std::vector<net::Fd>& sockets_;
  const MeetOptions options_;
  const int world_;
  SegmentShape shape_;
  ShmParts parts_;
  net::Fd listener_;
  std::vector<Hello> hellos_;
  std::vector<Verdict> verdicts_;
};

}  // namespace

ShmMeeting meet_over_shm(const std::vector<net::Fd>& sockets, const MeetOptions& options) {
  if (options.rank < 0 || static_cast<std::size_t>(options.rank) >= sockets.size())
    throw UsageError(fmt::format("rank {} is not among {} ranks", options.rank, sockets.size()));
  return ShmMeeter(sockets, options).run();
}

}  // namespace paceline::link
