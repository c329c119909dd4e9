// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How the ranks of a job find each other: one meeting at the store's host, then one authenticated
/// connection per pair of ranks.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paceline/net/fd.h"
#include "paceline/store/control.h"

namespace paceline::store {

/// What the ranks of a job know and strangers do not. Empty: authentication was switched off on
/// purpose.
struct Secret {
  std::optional<std::array<std::byte, 32>> key;
};

struct JoinOptions {
  int rank = 0;
  int world = 1;
  std::string host;        ///< the store's host, or "@name" for an abstract UNIX socket
  std::uint16_t port = 0;  ///< the store's port; unused for "@name"
  std::string named_by{};  ///< who says so, for errors: "MASTER_ADDR, MASTER_PORT"; empty: nobody
  Secret secret;
  std::string algorithm;  ///< override that all ranks must share; empty: none
  /// For all that join() does. The error may come kVerdictGrace later.
  std::chrono::milliseconds connect_timeout{std::chrono::seconds(60)};
};

/// The store knows who is missing, so its verdict is awaited a little beyond connect_timeout.
inline constexpr std::chrono::milliseconds kVerdictGrace{2000};

/// A rank that has met all others.
struct Membership {
  std::unique_ptr<Control> control;
  std::vector<net::Fd> sockets;  ///< [world]; sockets[p] leads to rank p, the own entry is empty
  std::uint32_t generation = 0;  ///< of the job; rides in every frame
};

/// Meets the other ranks.
///
/// Order   Every rank of the job calls it; returns on all when all are connected to each other. All
///         may call it again, to meet anew, once their control has got a cause or is gone.
/// Cost    One message to the store and one connection to each rank. No try begins after
///         connect_timeout, but looking a host's name up may last as long as resolv.conf(5) allows.
/// Errors  UsageError if rank, world or connect_timeout make no sense. CommError kConnectFailed if
///         the store cannot be reached before connect_timeout (its name may become known and its
///         port be opened until then), a rank never comes before connect_timeout (its number is in
///         the text), two ranks cannot connect (the text has the address) or one goes before all
///         have met; kRefused, on all ranks and with both values, if the world size or algorithm
///         differ or the rank is taken. Whose secret, version or byte order differ is a stranger:
///         only it gets kRefused, the others go on waiting.
[[nodiscard]] Membership join(const JoinOptions& options);

struct ServerOptions {
  int world = 1;
  Secret secret;
  std::chrono::milliseconds connect_timeout{std::chrono::seconds(60)};
};

/// The meeting place and the hub of the control channel, on a thread of its own.
///
/// Threads  note_exit(), take_notices() and strangers() from any thread.
class Server {
 public:
  /// Serves on an already bound and listening socket (TCP or abstract UNIX), never re-bound.
  Server(net::Fd listener, ServerOptions options);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();

  /// Tells the hub how a rank's process ended ("was killed by SIGKILL", "exited with code 7"), so
  /// that the other ranks' errors can say so.
  void note_exit(int rank, const std::string& how);

  /// What a person at the store's host should know while ranks are missing, each text once:
  /// "still waiting for rank 1: a connection from 10.0.0.2:4711 was refused: the secret differs …".
  [[nodiscard]] std::vector<std::string> take_notices();
  /// Readable while take_notices() has something to give.
  [[nodiscard]] const net::Fd& notices() const;

  /// Connections dropped so far because they were not of this job: silent ones, those that speak
  /// something else, those without its secret. A figure for whoever watches over the store's port;
  /// what a person can mend, take_notices() tells.
  [[nodiscard]] std::uint64_t strangers() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::store
