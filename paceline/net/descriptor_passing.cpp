// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/descriptor_passing.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "paceline/net/poll.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

constexpr std::size_t kMostReceived = 4;  // the kernel closes what does not fit

/// A message of one byte with room for `count` descriptors.
template <std::size_t count>
struct Message {
  Message() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  std::byte byte{};
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(count * sizeof(int))> control{};
  msghdr header{};
};

std::vector<Fd> take_descriptors(msghdr& header) {
  std::vector<Fd> taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int raw = -1;
      std::memcpy(&raw, CMSG_DATA(part) + i * sizeof raw, sizeof raw);
      taken.emplace_back(raw);
    }
  }
  return taken;
}

/// @return bytes moved, or -1 with EAGAIN once the deadline has passed.
template <class Move>
ssize_t move_one(const Move& move,
                 const Fd& socket,
                 bool (*wait)(const Fd&, Deadline),
                 Deadline deadline) {
  for (;;) {
    const ssize_t moved = move();
    if (moved >= 0) return moved;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return moved;
    if (!wait(socket, deadline)) {
      errno = EAGAIN;
      return moved;
    }
  }
}

[[noreturn]] void throw_failed(std::string_view doing) {
  if (errno == EAGAIN) throw TimedOut(doing);
  throw_errno(doing);
}

}  // namespace

void send_descriptor(const Fd& local_socket, const Fd& descriptor, Deadline deadline) {
  Message<1> message;
  cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int raw = descriptor.raw();
  std::memcpy(CMSG_DATA(part), &raw, sizeof raw);
  const auto send = [&] {
    return ::sendmsg(local_socket.raw(), &message.header, MSG_NOSIGNAL | MSG_DONTWAIT);
  };
  if (move_one(send, local_socket, &wait_writable, deadline) < 0)
    throw_failed("sending a descriptor");
}

Fd recv_descriptor(const Fd& local_socket, Deadline deadline) {
  constexpr std::string_view kDoing = "receiving a descriptor";
  Message<kMostReceived> message;
  const auto receive = [&] {
    message.header.msg_controllen = message.control.size();
    return ::recvmsg(local_socket.raw(), &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  };
  const ssize_t got = move_one(receive, local_socket, &wait_readable, deadline);
  if (got < 0) throw_failed(kDoing);
  std::vector<Fd> taken = take_descriptors(message.header);
  if (got == 0) throw EndOfStream(kDoing);
  if (taken.size() != 1)
    throw SystemError(EPROTO, kDoing, taken.empty() ? "none came" : "more than one came");
  return std::move(taken.front());
}

}  // namespace paceline::net
