// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Descriptors through a connected, non-blocking local socket.

#include "paceline/base/deadline.h"
#include "paceline/net/fd.h"

namespace paceline::net {

/// Sends one descriptor, and one byte that carries it; ours stays open.
///
/// Errors  TimedOut, SystemError (EPIPE, ECONNRESET if the peer is gone).
void send_descriptor(const Fd& local_socket, const Fd& descriptor, Deadline deadline);

/// Receives what send_descriptor() sent, close-on-exec.
///
/// Errors  TimedOut; EndOfStream if the peer closed first; SystemError, EPROTO if the next byte
///         carries no descriptor or more than one: none stays open.
[[nodiscard]] Fd recv_descriptor(const Fd& local_socket, Deadline deadline);

}  // namespace paceline::net
