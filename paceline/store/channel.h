// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Control messages over a connected, authenticated, non-blocking socket. The two directions are
/// apart because a rank sends from any thread and reads from one.

#include <cstddef>
#include <optional>
#include <vector>

#include "paceline/net/fd.h"
#include "paceline/store/message.h"

namespace paceline::store {

/// Messages on their way out.
class Outlet {
 public:
  Outlet(const Key& key, Side speaker) : sealer_(key, speaker) {}
  /// Takes a message to be sent by flush().
  void push(const Message& message) { sealer_.append(message, unsent_); }
  /// Sends what fits now. @return false once the other end has gone.
  bool flush(const net::Fd& socket);
  [[nodiscard]] std::size_t unsent() const { return unsent_.size(); }

 private:
  Sealer sealer_;
  std::vector<std::byte> unsent_;
};

/// Messages on their way in.
class Inlet {
 public:
  Inlet(const Key& key, Side speaker) : opener_(key, speaker) {}
  /// Reads what is there now. @return false at the end of the stream; messages that came before it
  /// still are given.
  bool pull(const net::Fd& socket);
  /// Errors  BadMessage.
  [[nodiscard]] std::optional<Message> next() { return opener_.next(); }

 private:
  Opener opener_;
};

struct Channel {
  /// `side` is this end's in the handshake.
  Channel(net::Fd connected, const Key& session_key, Side side)
      : socket(std::move(connected)),
        out(session_key, side),
        in(session_key, side == Side::kInitiator ? Side::kAcceptor : Side::kInitiator) {}
  net::Fd socket;
  Outlet out;
  Inlet in;
};

}  // namespace paceline::store
