// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/stream.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

constexpr std::size_t kMostParts = 64;  // more parts go with the next call

IoResult failed(int error) {
  IoResult result;
  result.would_block = error == EAGAIN || error == EWOULDBLOCK;
  result.closed = !result.would_block;
  if (result.closed) result.error = error;
  return result;
}

/// Fills `slots` with the non-empty parts, in order. @return how many.
std::size_t gather(std::span<const std::span<const std::byte>> parts, std::span<iovec> slots) {
  std::size_t used = 0;
  for (const auto& part : parts) {
    if (part.empty()) continue;
    if (used == slots.size()) break;
    // sendmsg() does not write through iov_base; the C interface just lacks the const.
    slots[used++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  return used;
}

}  // namespace

IoResult try_write(const Fd& fd, std::span<const std::span<const std::byte>> parts) noexcept {
  std::array<iovec, kMostParts> slots;
  msghdr message{};
  message.msg_iov = slots.data();
  message.msg_iovlen = gather(parts, slots);
  if (message.msg_iovlen == 0) return {};
  for (;;) {
    const ssize_t sent = ::sendmsg(fd.raw(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return {.bytes = static_cast<std::size_t>(sent)};
    if (errno != EINTR) return failed(errno);
  }
}

IoResult try_write(const Fd& fd, std::span<const std::byte> bytes) noexcept {
  return try_write(fd, std::span(&bytes, 1));
}

IoResult try_read(const Fd& fd, std::span<std::byte> into) noexcept {
  if (into.empty()) return {};
  for (;;) {
    const ssize_t got = ::read(fd.raw(), into.data(), into.size());
    if (got > 0) return {.bytes = static_cast<std::size_t>(got)};
    if (got == 0) return {.closed = true};
    if (errno != EINTR) return failed(errno);
  }
}

void send_all(const Fd& fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const IoResult result = try_write(fd, bytes);
    if (result.closed)
      throw SystemError(result.error, fmt::format("sending to {}", peer_address(fd)));
    bytes = bytes.subspan(result.bytes);
    if (result.would_block && !wait_writable(fd, deadline))
      throw TimedOut(fmt::format("sending to {}", peer_address(fd)));
  }
}

void recv_exactly(const Fd& fd, std::span<std::byte> into, Deadline deadline) {
  while (!into.empty()) {
    const IoResult result = try_read(fd, into);
    if (result.closed) {
      const std::string doing = fmt::format("receiving from {}", peer_address(fd));
      if (result.error == 0) throw EndOfStream(doing);
      throw SystemError(result.error, doing);
    }
    into = into.subspan(result.bytes);
    if (result.would_block && !wait_readable(fd, deadline))
      throw TimedOut(fmt::format("receiving from {}", peer_address(fd)));
  }
}

}  // namespace paceline::net
