// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <vector>

#include "paceline/base/checked_cast.h"
#include "paceline/base/error.h"
#include "paceline/net/address.h"
#include "paceline/net/poll.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

constexpr int kBacklog = 1024;

void set_option(const Fd& socket, int level, int option, int value) {
  if (::setsockopt(socket.raw(), level, option, &value, sizeof value) != 0)
    throw_errno(fmt::format("setting socket option {}/{} to {}", level, option, value));
}

/// A vanished host is noticed after about 10 + 3 * 5 s of silence. TCP_USER_TIMEOUT stays unset: it
/// would also cut a peer that is alive and merely does not read.
void prepare_tcp(const Fd& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

Fd make_socket(int family) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw_errno("making a socket", "raise the limit of open files if it is reached");
  return socket;
}

Address address_of(const Fd& socket, int (*ask)(int, sockaddr*, socklen_t*)) {
  Address address;
  if (ask(socket.raw(), address.get(), &address.size) != 0) throw_errno("asking for an address");
  return address;
}

bool is_tcp(const Fd& socket) {
  const int family = address_of(socket, &::getsockname).family();
  return family == AF_INET || family == AF_INET6;
}

/// Binds and listens. @return an errno value, 0 if it worked.
int listen_on(const Fd& socket, const Address& address) {
  if (::bind(socket.raw(), address.get(), address.size) != 0) return errno;
  if (::listen(socket.raw(), kBacklog) != 0) return errno;
  return 0;
}

const char* advice_for_listen(int code) {
  switch (code) {
    case EADDRINUSE: return "choose another port";
    case EADDRNOTAVAIL: return "the address belongs to no interface of this host";
    case EACCES: return "choose a port above 1023";
    default: return "";
  }
}

int pending_error(const Fd& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket.raw(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

/// How a connect ended. @return an errno value, 0 if `socket` is connected.
int outcome_of(const Fd& socket) {
  if (const int error = pending_error(socket); error != 0) return error;
  Address peer;
  if (::getpeername(socket.raw(), peer.get(), &peer.size) != 0)
    return errno == ENOTCONN ? ECONNRESET : errno;  // it came up, and was reset since
  // A connect to a free local port may meet itself.
  return peer == address_of(socket, &::getsockname) ? ECONNREFUSED : 0;
}

/// @return an errno value, 0 if `socket` is connected.
int connect_once(const Fd& socket, const Address& address, Deadline deadline) {
  if (::connect(socket.raw(), address.get(), address.size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_writable(socket, deadline)) return ETIMEDOUT;
  }
  return outcome_of(socket);
}

/// A local connect never is in progress: EAGAIN says that the listener's queue is full.
int connect_local(const Fd& socket, const Address& address, Deadline deadline) {
  using std::chrono::milliseconds;
  for (;;) {
    if (::connect(socket.raw(), address.get(), address.size) == 0) return 0;
    if (errno != EAGAIN && errno != EINTR) return errno;
    if (deadline.passed()) return ETIMEDOUT;
    (void)poll({}, Deadline::earlier(deadline, Deadline::after(milliseconds(2))));
  }
}

bool may_come_up(int code) {
  switch (code) {
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ETIMEDOUT: return true;
    default: return false;
  }
}

bool is_transient_accept_error(int code) {
  return code == ECONNABORTED || code == EPROTO || code == ENETDOWN || code == EHOSTUNREACH ||
         code == ENETUNREACH || code == EPERM;
}

/// "node7:80 (10.0.0.1:80: Connection refused, [::1]:80: …)"; an address alone says it all.
std::string who_answered_what(const std::string& asked, const std::vector<std::string>& answers) {
  if (answers.size() == 1 && answers.front().starts_with(asked + ": ")) return asked;
  return fmt::format("{} ({})", asked, fmt::join(answers, ", "));
}

std::string address_text(const Fd& socket, int (*ask)(int, sockaddr*, socklen_t*)) {
  Address address;
  if (ask(socket.raw(), address.get(), &address.size) != 0) return "an unconnected socket";
  return to_text(address);
}

}  // namespace

Fd listen_tcp(const std::string& host, std::uint16_t port) {
  int code = 0;
  for (const Address& address : resolve(host, port)) {
    Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
      code = errno;  // this host may lack one of the families
      continue;
    }
    set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    code = listen_on(socket, address);
    if (code == 0) return socket;
  }
  throw SystemError(code, fmt::format("listening on {}", to_text(host, port)),
                    advice_for_listen(code));
}

Fd connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline) {
  const auto addresses = resolve(host, port);
  std::vector<std::string> answers;
  int code = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto share = deadline.left() / static_cast<int>(addresses.size() - i);
    const Deadline mine = deadline.is_never() ? deadline : Deadline::after(share);
    Fd socket(::socket(addresses[i].family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    code = socket ? connect_once(socket, addresses[i], mine) : errno;
    if (code == 0) {
      prepare_tcp(socket);
      return socket;
    }
    answers.push_back(fmt::format("{}: {}", to_text(addresses[i]), errno_text(code)));
  }
  constexpr std::string_view kAdvice = "is the other side running, and reachable from this host?";
  const auto doing = "connecting to " + who_answered_what(to_text(host, port), answers);
  if (code == ETIMEDOUT && deadline.passed()) throw TimedOut(doing, kAdvice);
  throw SystemError(code, doing, kAdvice);
}

Fd connect_tcp_until(const std::string& host, std::uint16_t port, Deadline deadline) {
  using std::chrono::milliseconds;
  for (milliseconds pause(5);; pause = std::min(pause * 2, milliseconds(250))) {
    try {
      return connect_tcp(host, port, deadline);
    } catch (const SystemError& error) {
      if (!may_come_up(error.code())) throw;
      (void)poll({}, Deadline::earlier(deadline, Deadline::after(pause)));
      if (deadline.passed()) throw TimedOut(error);
    }
  }
}

Fd start_connect_tcp(const std::string& address, std::uint16_t port) {
  const Address peer = numeric_address(address, port);
  Fd socket = make_socket(peer.family());
  prepare_tcp(socket);
  if (::connect(socket.raw(), peer.get(), peer.size) != 0 && errno != EINPROGRESS && errno != EINTR)
    throw_errno("connecting to " + to_text(peer));
  return socket;
}

std::optional<int> connect_outcome(const Fd& socket) {
  if (!wait_writable(socket, Deadline::after({}))) return std::nullopt;
  return outcome_of(socket);
}

Fd accept(const Fd& listener, Deadline deadline) {
  for (;;) {
    if (Fd socket = accept_now(listener)) return socket;
    if (!wait_readable(listener, deadline))
      throw TimedOut(fmt::format("waiting for a connection on {}", local_address(listener)));
  }
}

Fd accept_now(const Fd& listener) {
  for (;;) {
    Fd socket(::accept4(listener.raw(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      if (is_tcp(socket)) prepare_tcp(socket);
      return socket;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    if (errno == EINTR || is_transient_accept_error(errno)) continue;
    throw_errno(fmt::format("accepting on {}", local_address(listener)),
                "raise the limit of open files if it is reached");
  }
}

Fd listen_unix_abstract(std::string_view name) {
  const Address address = abstract_address(name);
  Fd socket = make_socket(AF_UNIX);
  if (const int code = listen_on(socket, address); code != 0)
    throw SystemError(code, fmt::format("listening on @{}", name),
                      code == EADDRINUSE ? "another process of this host holds the name" : "");
  return socket;
}

Fd connect_unix_abstract(std::string_view name, Deadline deadline) {
  const Address address = abstract_address(name);
  Fd socket = make_socket(AF_UNIX);
  const int code = connect_local(socket, address, deadline);
  if (code == ETIMEDOUT) throw TimedOut(fmt::format("connecting to @{}", name));
  if (code != 0)
    throw SystemError(code, fmt::format("connecting to @{}", name), "is the other side running?");
  return socket;
}

Credentials peer_credentials(const Fd& local_socket) {
  ucred got{};
  socklen_t size = sizeof got;
  if (::getsockopt(local_socket.raw(), SOL_SOCKET, SO_PEERCRED, &got, &size) != 0)
    throw_errno("asking who sits at the other end of a local socket");
  return {.uid = got.uid, .pid = got.pid};
}

std::pair<Fd, Fd> socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw_errno("making a pair of sockets", "raise the limit of open files if it is reached");
  return {Fd(ends[0]), Fd(ends[1])};
}

std::string local_address(const Fd& socket) { return address_text(socket, &::getsockname); }

std::string peer_address(const Fd& socket) { return address_text(socket, &::getpeername); }

std::uint16_t local_port(const Fd& tcp_socket) {
  const Address address = address_of(tcp_socket, &::getsockname);
  if (address.family() == AF_INET) return ntohs(address.storage.v4.sin_port);
  if (address.family() == AF_INET6) return ntohs(address.storage.v6.sin6_port);
  throw UsageError("only a TCP socket has a port");
}

void make_nonblocking(const Fd& fd) {
  const int flags = ::fcntl(fd.raw(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.raw(), F_SETFL, flags | O_NONBLOCK) != 0)
    throw_errno(fmt::format("making descriptor {} non-blocking", fd.raw()));
}

void make_close_on_exec(const Fd& fd) {
  const int flags = ::fcntl(fd.raw(), F_GETFD);
  if (flags < 0 || ::fcntl(fd.raw(), F_SETFD, flags | FD_CLOEXEC) != 0)
    throw_errno(fmt::format("marking descriptor {} close-on-exec", fd.raw()));
}

void shutdown_both(const Fd& socket) noexcept { (void)::shutdown(socket.raw(), SHUT_RDWR); }

void limit_unacknowledged(const Fd& tcp_socket, std::chrono::milliseconds limit) {
  set_option(tcp_socket, IPPROTO_TCP, TCP_USER_TIMEOUT, checked_cast<int>(limit.count()));
}

}  // namespace paceline::net
