// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/tcp/tcp_fabric.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>

#include "paceline/base/error.h"
#include "paceline/link/link_table.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "paceline/net/system_error.h"
#include "paceline/net/wakeup.h"

namespace paceline::link {
namespace {

std::string reason_of(int error) {
  switch (error) {
    case 0:
    case EPIPE: return "closed by the peer";
    case ECONNRESET: return "reset by the peer";
    default: return fmt::format("broken: {}", net::errno_text(error));
  }
}

/// The kernel sizes its buffers by itself: fixed ones were no faster over loopback.
class TcpLink final : public Link {
 public:
  explicit TcpLink(net::Fd socket) : socket_(std::move(socket)) { net::make_nonblocking(socket_); }

  std::size_t try_send(std::span<const std::span<const std::byte>> parts) override {
    throw_if_ended();
    const net::IoResult result = net::try_write(socket_, parts);
    if (result.closed) end(reason_of(result.error));
    return result.bytes;
  }

  std::size_t try_recv(std::span<std::byte> into) override {
    if (closed_here_) throw LinkClosed("closed here");
    const net::IoResult result = net::try_read(socket_, into);
    if (result.closed) end(end_.empty() ? reason_of(result.error) : end_);
    return result.bytes;
  }

  void close() noexcept override {
    // Shut down, not closed: another thread may be using the descriptor's number.
    if (!closed_here_.exchange(true)) net::shutdown_both(socket_);
  }

  [[nodiscard]] const net::Fd& socket() const noexcept { return socket_; }

 private:
  void throw_if_ended() const {
    if (closed_here_) throw LinkClosed("closed here");
    if (!end_.empty()) throw LinkClosed(end_);
  }
  [[noreturn]] void end(std::string reason) {
    if (closed_here_) throw LinkClosed("closed here");
    end_ = std::move(reason);  // the kernel tells a reset only once
    throw LinkClosed(end_);
  }

  const net::Fd socket_;
  std::string end_;  // why the stream ended; empty while it lives
  std::atomic<bool> closed_here_{false};
};

class TcpFabric final : public Fabric {
 public:
  TcpFabric(int rank, std::vector<net::Fd> sockets) {
    for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
      const bool own = peer == static_cast<std::size_t>(rank);
      links_.add(own ? nullptr : std::make_unique<TcpLink>(std::move(sockets[peer])));
    }
  }
  ~TcpFabric() override { TcpFabric::close(); }

  Link& to(int peer) override { return links_.at(peer); }

  void wait(std::span<const Interest> interests, Deadline deadline) override {
    items_.clear();
    items_.push_back({.fd = &wakeup_.fd(), .recv = true});
    for (const Interest& interest : interests)
      items_.push_back(
          {.fd = &links_.at(interest.peer).socket(), .send = interest.send, .recv = interest.recv});
    net::poll(items_, deadline);
    if (items_.front().can_recv) wakeup_.drain();
  }

  void wake() noexcept override { wakeup_.wake(); }

  void close() noexcept override { links_.close(); }

  bool worth_spinning() const noexcept override { return false; }
  const char* name() const noexcept override { return "tcp"; }

 private:
  LinkTable<TcpLink> links_;
  net::Wakeup wakeup_;
  std::vector<net::PollItem> items_;  // of wait(), kept between calls
};

}  // namespace

std::unique_ptr<Fabric> make_tcp_fabric(int rank, std::vector<net::Fd> sockets) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= sockets.size())
    throw UsageError(fmt::format("rank {} is not among {} ranks", rank, sockets.size()));
  for (std::size_t peer = 0; peer < sockets.size(); ++peer)
    if (static_cast<bool>(sockets[peer]) == (peer == static_cast<std::size_t>(rank)))
      throw UsageError(fmt::format("rank {} {} a socket to rank {}", rank,
                                   sockets[peer] ? "has" : "lacks", peer));
  return std::make_unique<TcpFabric>(rank, std::move(sockets));
}

}  // namespace paceline::link
