// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A connection whose handshake goes on, and the gate that drives those of a listener. Nothing here
/// blocks: one silent stranger delays nobody.

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/deadline.h"
#include "paceline/net/fd.h"
#include "paceline/net/poll.h"
#include "paceline/store/handshake.h"

namespace paceline::store {

class HalfOpen {
 public:
  enum class Outcome { kPending, kAccepted, kRefused, kLost };

  HalfOpen(net::Fd socket, const Terms& terms, Deadline deadline);

  /// Moves what moves now. kLost: the other end has gone, or the deadline has passed.
  Outcome step();
  [[nodiscard]] net::PollItem interest() const;
  [[nodiscard]] Deadline deadline() const { return deadline_; }
  [[nodiscard]] const Handshake& handshake() const { return handshake_; }
  /// Whether the other end has sent anything at all.
  [[nodiscard]] bool heard() const { return heard_; }
  /// "10.0.0.2:4711": the other end, also after it has gone.
  [[nodiscard]] const std::string& address() const { return address_; }
  /// Gives the socket away, once accepted.
  [[nodiscard]] net::Fd take_socket() { return std::move(socket_); }

 private:
  bool write();
  bool read();

  net::Fd socket_;
  std::string address_;
  Handshake handshake_;
  Deadline deadline_;
  std::vector<std::byte> unsent_;
  bool heard_ = false;
};

/// Drives the handshake to its end, sleeping between steps.
HalfOpen::Outcome complete(HalfOpen& half);

/// Dials and shakes hands until the other end says yes or no: one that leaves without a word may
/// be busy.
///
/// @return the connection, accepted or refused; empty if `deadline` passes first.
[[nodiscard]] std::optional<HalfOpen> shake_hands(const std::function<net::Fd()>& dial,
                                                  const Terms& terms,
                                                  Deadline deadline);

/// Somebody whose handshake succeeded.
struct Guest {
  net::Fd socket;
  int rank = 0;
  Key session_key{};
};

/// Somebody who knows the secret and was refused all the same.
struct Offender {
  int rank = 0;
  Refusal refusal;
};

/// Somebody who spoke our protocol and did not prove to be of this job.
struct Stranger {
  std::string address;  ///< "10.0.0.2:4711"
  Refusal refusal;
};

/// What a gate grants to those who are not known yet.
struct GateLimits {
  std::size_t at_once = 128;                          ///< handshakes; the next ones wait
  std::chrono::milliseconds time{2000};               ///< for one handshake
  std::chrono::milliseconds silence_in_a_crowd{500};  ///< ours speak first, in milliseconds
};

/// Takes the connections of one listener and lets in those that belong to the job. At its limit it
/// takes the next one when a handshake ends, or in place of one that has had time and said nothing.
class Gate {
 public:
  /// `listener` outlives the gate.
  Gate(const net::Fd& listener, const Terms& terms, const GateLimits& limits = {});

  /// Adds what it waits for.
  void want(std::vector<net::PollItem>& items) const;
  /// When step() has something to do without being woken.
  [[nodiscard]] Deadline next() const;
  void step();

  [[nodiscard]] std::vector<Guest> take_guests();
  [[nodiscard]] std::vector<Offender> take_offenders();
  /// Connections dropped because they were not of this job.
  [[nodiscard]] std::uint64_t strangers() const { return strangers_; }
  /// Those of them that had something to say; of a crowd the first ones.
  [[nodiscard]] std::vector<Stranger> take_strangers();

 private:
  void accept();
  void advance();
  [[nodiscard]] bool has_room() const;
  /// When this one may be dropped for the next.
  [[nodiscard]] Deadline displaceable(const HalfOpen& one) const;
  void finish(HalfOpen& one, HalfOpen::Outcome outcome);

  const net::Fd& listener_;
  const bool local_;  // a local socket: the kernel tells whose the other end is
  Terms terms_;
  const GateLimits limits_;
  std::list<HalfOpen> half_open_;  // oldest first
  std::vector<Guest> guests_;
  std::vector<Offender> offenders_;
  std::uint64_t strangers_ = 0;
  std::vector<Stranger> talkers_;   // at most kMaxTalkers
  std::optional<Deadline> paused_;  // accept() failed: too many open files
};

}  // namespace paceline::store
