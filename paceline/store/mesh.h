// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// One authenticated data connection per pair of ranks: rank i dials all j < i and is dialled by
/// all j > i. Dialling needs no answer from the other rank's program (the kernel queues it), so
/// ranks cannot wait for each other in a circle.

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "paceline/net/fd.h"
#include "paceline/net/poll.h"
#include "paceline/store/half_open.h"

namespace paceline::store {

struct MeshOptions {
  int rank = 0;
  std::uint32_t generation = 0;
  Secret secret;
  std::vector<std::string> addresses;  ///< [world], "10.0.0.5:4711"
  /// For one try to connect; the next one follows.
  std::chrono::milliseconds dial_limit{std::chrono::seconds(5)};
};

class Mesh {
 public:
  /// `listener` is at addresses[rank] and outlives the mesh.
  Mesh(const net::Fd& listener, const MeshOptions& options, Deadline deadline);

  void want(std::vector<net::PollItem>& items) const;
  /// When step() has something to do without being woken.
  [[nodiscard]] Deadline next() const;
  /// Moves what moves now, and never waits.
  ///
  /// Errors  CommError kRefused if a peer is not of this job; BadMessage if one's address is none.
  void step();
  [[nodiscard]] bool done() const { return missing().empty(); }
  [[nodiscard]] std::vector<int> missing() const;
  /// [world]; gives the sockets away.
  [[nodiscard]] std::vector<net::Fd> take_sockets() { return std::move(sockets_); }

 private:
  struct Dial {
    int peer = 0;
    net::Fd connecting{};
    std::optional<HalfOpen> half{};  // once connected
    Deadline due;  // while connecting: when to give this try up; else when to dial (once more)
    std::chrono::milliseconds pause{10};
  };

  [[nodiscard]] Terms terms_for(Side side, std::uint32_t peer) const;
  void start(Dial& dial);
  void finish_connect(Dial& dial);
  /// @return whether the dial is done.
  bool step(Dial& dial);
  void retry_later(Dial& dial);

  MeshOptions options_;
  Deadline deadline_;
  Gate gate_;
  std::list<Dial> dials_;
  std::vector<net::Fd> sockets_;
};

}  // namespace paceline::store
