// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Bytes through a connected, non-blocking socket (or, for reading, a pipe). Every descriptor that
/// net/ makes is non-blocking; an inherited one first goes through make_nonblocking().

#include <cstddef>
#include <span>

#include "paceline/base/deadline.h"
#include "paceline/net/fd.h"

namespace paceline::net {

/// What one try moved, and why it moved no more.
struct IoResult {
  std::size_t bytes = 0;
  bool would_block = false;  ///< nothing fits, or nothing is there, now
  bool closed = false;       ///< the stream has ended: `error` is 0, or ECONNRESET, EPIPE …
  int error = 0;             ///< errno if the stream broke
};

/// Sends what fits now of the concatenation of `parts`, in one system call. No SIGPIPE.
/// @return bytes == 0 without would_block or closed only if `parts` holds no byte.
[[nodiscard]] IoResult try_write(const Fd& fd,
                                 std::span<const std::span<const std::byte>> parts) noexcept;
[[nodiscard]] IoResult try_write(const Fd& fd, std::span<const std::byte> bytes) noexcept;

/// Reads what is there now, up to into.size() bytes.
[[nodiscard]] IoResult try_read(const Fd& fd, std::span<std::byte> into) noexcept;

/// Sends all bytes, sleeping while nothing fits.
///
/// Errors  TimedOut, SystemError (EPIPE, ECONNRESET if the peer is gone).
void send_all(const Fd& fd, std::span<const std::byte> bytes, Deadline deadline);

/// Fills `into`, sleeping while nothing is there.
///
/// Errors  TimedOut; EndOfStream if the peer closed first; SystemError.
void recv_exactly(const Fd& fd, std::span<std::byte> into, Deadline deadline);

}  // namespace paceline::net
