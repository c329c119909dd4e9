// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A link moves bytes to and from one peer without ever blocking; a fabric is one rank's links to
/// all its peers, and the one thing to wait on. Frames, order and meaning belong to comm.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "paceline/base/deadline.h"
#include "paceline/link/windows.h"

namespace paceline::link {

/// There is no room for what a window should hold; `what()` says which limit was met.
class OutOfWindowMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The peer has closed or broken this link. `what()` says how ("closed by the peer", "reset by the
/// peer", "closed here"), without naming ranks: comm knows who sits at the other end.
class LinkClosed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An ordered, reliable, full-duplex stream of bytes to one peer.
///
/// Threads  One thread at a time (comm's driver), except close(), which any thread may call.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  /// Sends as much as fits now of the concatenation of `parts`, in one gathered write.
  /// @return bytes taken, 0 if nothing fits now.
  /// Errors  LinkClosed once the peer can never receive.
  [[nodiscard]] virtual std::size_t try_send(std::span<const std::span<const std::byte>> parts) = 0;

  /// Receives up to into.size() bytes. What the peer sent before it closed still comes.
  /// @return bytes received, 0 if none are there now (or `into` is empty).
  /// Errors  LinkClosed at the end of the stream.
  [[nodiscard]] virtual std::size_t try_recv(std::span<std::byte> into) = 0;

  /// Closes both directions; idempotent. Bytes already taken by try_send may still arrive.
  virtual void close() noexcept = 0;
};

/// What a waiter wants of one link. All interests in posts must be fulfilled before it wakes for
/// them; else one suffices.
struct Interest {
  int peer = 0;
  bool send = false;  ///< wake when try_send may take bytes
  bool recv = false;  ///< wake when try_recv may give bytes, or the link closed
  int stage = -1;     ///< of windows(): wake when the peer has posted `post` in it
  std::uint64_t post = 0;
};

/// One rank's links to all its peers.
///
/// Threads  One thread at a time, except wake() and close(), which any thread may call.
class Fabric {
 public:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  virtual ~Fabric() = default;

  /// The link to `peer`; peer != own rank. Valid as long as the fabric.
  [[nodiscard]] virtual Link& to(int peer) = 0;

  /// Sleeps until one of `interests` may move, wake() was called since the last wait returned, or
  /// the deadline has passed. Spurious returns are allowed; a wake() is never lost. Uses no CPU
  /// meanwhile.
  virtual void wait(std::span<const Interest> interests, Deadline deadline) = 0;

  /// Makes the current or the next wait() return.
  virtual void wake() noexcept = 0;

  /// Closes every link; idempotent.
  virtual void close() noexcept = 0;

  /// Whether a short spin before wait() pays: true where a byte is seen without a system call.
  [[nodiscard]] virtual bool worth_spinning() const noexcept = 0;

  /// Memory that all ranks reach; null where the links have none.
  [[nodiscard]] virtual Windows* windows() noexcept { return nullptr; }

  /// "memory", "shm" or "tcp".
  [[nodiscard]] virtual const char* name() const noexcept = 0;
};

}  // namespace paceline::link
