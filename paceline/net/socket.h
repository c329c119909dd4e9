// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Stream sockets: TCP of both IP families, and local ones that leave no file. Every socket made
/// here is non-blocking and close-on-exec; TCP ones have no delay and keep-alive. Bytes: stream.h.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "paceline/base/deadline.h"
#include "paceline/net/fd.h"

namespace paceline::net {

/// Listens on `host` (a name, an address, "0.0.0.0" or "::" for every interface). Port 0 lets the
/// system choose; local_port() tells.
///
/// Errors  UnknownHost; SystemError (EADDRINUSE, EADDRNOTAVAIL, EACCES).
[[nodiscard]] Fd listen_tcp(const std::string& host, std::uint16_t port);

/// Connects, trying each address of `host` once; slow addresses share the time.
///
/// Errors  TimedOut; UnknownHost; SystemError that lists what each address answered (code() of the
///         last one).
/// Cost    Looking a name up is not bounded by the deadline: resolv.conf(5) is its limit.
[[nodiscard]] Fd connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline);

/// The same, but tries again while nobody listens or the host is unknown or unreachable, until the
/// deadline: for a peer that may start later, and whose name may become known later.
///
/// Errors  TimedOut with the text of the last try. What waiting does not mend is thrown at once.
[[nodiscard]] Fd connect_tcp_until(const std::string& host, std::uint16_t port, Deadline deadline);

/// Begins to connect to an address ("10.0.0.5", "::1"; no name) and returns at once. The socket
/// becomes writable when connect_outcome() has an answer.
///
/// Errors  UnknownHost if it is no address; SystemError if it fails at once.
[[nodiscard]] Fd start_connect_tcp(const std::string& address, std::uint16_t port);

/// How that ended: 0 if `socket` is connected, else an errno value; nothing while it goes on. Asked
/// until it answers, once.
[[nodiscard]] std::optional<int> connect_outcome(const Fd& socket);

/// Takes the next connection, of TCP or local listeners.
///
/// Errors  TimedOut, SystemError.
[[nodiscard]] Fd accept(const Fd& listener, Deadline deadline);

/// Takes a connection if one waits, else returns an empty Fd.
[[nodiscard]] Fd accept_now(const Fd& listener);

/// Listens on the abstract local name `name`; it vanishes with the last descriptor.
///
/// Errors  SystemError (EADDRINUSE), UsageError if the name is empty or above 107 bytes.
[[nodiscard]] Fd listen_unix_abstract(std::string_view name);

/// Connects to it. Sleeps while the listener's queue is full.
///
/// Errors  SystemError (ECONNREFUSED if nobody listens), TimedOut.
[[nodiscard]] Fd connect_unix_abstract(std::string_view name, Deadline deadline);

/// Who sits at the other end of a local socket, as the kernel saw it at connect time.
struct Credentials {
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
};
[[nodiscard]] Credentials peer_credentials(const Fd& local_socket);

/// Two joined local sockets.
[[nodiscard]] std::pair<Fd, Fd> socket_pair();

/// "127.0.0.1:4711", "[::1]:4711", "@name", or words if there is none. Never throws for a bad
/// socket.
[[nodiscard]] std::string local_address(const Fd& socket);
[[nodiscard]] std::string peer_address(const Fd& socket);
[[nodiscard]] std::uint16_t local_port(const Fd& tcp_socket);

/// For inherited descriptors: a blocking one would stop its thread.
void make_nonblocking(const Fd& fd);
/// For inherited descriptors: keeps them from the next program.
void make_close_on_exec(const Fd& fd);

/// Ends both directions for all holders of the socket; peers read the end, sleepers wake. Any
/// thread.
void shutdown_both(const Fd& socket) noexcept;

/// Breaks the connection when bytes sent have not reached the other host for so long: its host is
/// lost. A peer that is stopped, or does not read, stays connected as long as its buffers have
/// room.
void limit_unacknowledged(const Fd& tcp_socket, std::chrono::milliseconds limit);

}  // namespace paceline::net
