// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The messages of the control channel and their bytes. What comes from a peer is input, not truth:
/// every length is checked before anything is allocated, and a bad message is one clear error.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "paceline/store/control.h"
#include "paceline/store/hmac.h"

namespace paceline::store {

/// Version of handshake, control messages and data frames together: all ranks speak the same.
inline constexpr std::uint16_t kProtocolVersion = 1;

inline constexpr std::size_t kMaxPayload = std::size_t{64} << 10;
inline constexpr std::size_t kMaxShortText = 255;  ///< host names, addresses, algorithms
inline constexpr std::size_t kMaxText = std::size_t{16} << 10;  ///< longer texts are cut
inline constexpr std::size_t kMaxTableEntries = 64;             ///< per message

/// Bytes that are no message of this protocol.
class BadMessage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Rank to hub: where its data listener is. Who it is, the handshake has proved.
struct Hello {
  std::chrono::milliseconds patience{0};         ///< how long this rank will still wait
  std::chrono::milliseconds connect_timeout{0};  ///< of which that is the rest, for texts
  std::string host;
  std::string address;  ///< "10.0.0.5:4711"
  std::string algorithm;
  bool operator==(const Hello&) const = default;
};

/// Hub to rank: part of the table of peers.
struct Table {
  struct Entry {
    std::string host;
    std::string address;
    bool operator==(const Entry&) const = default;
  };
  std::uint32_t generation = 0;
  std::uint32_t first = 0;  ///< rank of entries[0]
  std::vector<Entry> entries;
  bool operator==(const Table&) const = default;
};

struct Ready {  ///< rank to hub: connected to all others
  bool operator==(const Ready&) const = default;
};
struct Start {  ///< hub to rank: all are connected
  bool operator==(const Start&) const = default;
};
struct Tick {  ///< rank to hub: alive
  bool operator==(const Tick&) const = default;
};

/// Launcher to launcher of host 0: how many ranks this host will start.
struct HostReport {
  std::uint32_t ranks = 0;
  std::string host = {};
  std::string problem = {};  ///< why it cannot start them; empty: it can
  bool operator==(const HostReport&) const = default;
};
/// The answer: where this host's ranks begin, or why the job cannot start.
struct HostVerdict {
  std::uint32_t world = 0;
  std::uint32_t first_rank = 0;
  std::string problem;  ///< empty: none
  bool operator==(const HostVerdict&) const = default;
};

/// Standing and Cause go up to the hub, Event comes down. The order is the type number on the wire.
using Message =
    std::variant<Hello, Table, Ready, Start, Tick, Standing, Cause, Event, HostReport, HostVerdict>;

/// Payload of `message`; texts that are too long are cut.
[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// Errors  BadMessage.
[[nodiscard]] Message decode(std::uint16_t type, std::span<const std::byte> payload);

/// Which end of a connection speaks; keeps a message from being played back to its sender.
enum class Side : std::uint8_t { kInitiator = 1, kAcceptor = 2 };

inline constexpr std::size_t kHeaderBytes = 16 + std::tuple_size_v<Mac>;

/// Turns messages into the bytes of one direction of a connection: header, check, payload.
class Sealer {
 public:
  Sealer(const Key& key, Side speaker) : key_(key), speaker_(speaker) {}
  void append(const Message& message, std::vector<std::byte>& out);

 private:
  Key key_;
  Side speaker_;
  std::uint32_t counter_ = 0;
};

/// Turns the bytes of one direction of a connection back into messages.
class Opener {
 public:
  Opener(const Key& key, Side speaker) : key_(key), speaker_(speaker) {}
  void feed(std::span<const std::byte> bytes);

  /// The next whole message, if there is one.
  ///
  /// Errors  BadMessage if the bytes were made without the key, repeated, left out or damaged.
  [[nodiscard]] std::optional<Message> next();

 private:
  Key key_;
  Side speaker_;
  std::uint32_t counter_ = 0;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

}  // namespace paceline::store
