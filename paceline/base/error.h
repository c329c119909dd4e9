// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The two families of error the library throws, and nothing else.

#include <stdexcept>
#include <string>

namespace paceline {

/// A documented precondition is broken. Thrown before any byte is sent, so the object stays usable.
class UsageError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Why a communicator stopped working.
enum class CommErrc { kTimeout, kPeerClosed, kConnectFailed, kMismatch, kRefused, kAborted };

/// The outside world failed: a peer, the network, a deadline.
///
/// The communicator is poisoned: the first call that meets the cause throws the cause's own code,
/// every later one kAborted with a text that quotes it. Recovery is to build a new communicator.
class CommError : public std::runtime_error {
 public:
  CommError(CommErrc code, int rank, int peer, const std::string& what);
  [[nodiscard]] CommErrc code() const noexcept { return code_; }
  /// The rank that reports.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The rank to blame, or -1 when no single rank is.
  [[nodiscard]] int peer() const noexcept { return peer_; }

 private:
  CommErrc code_;
  int rank_;
  int peer_;
};

}  // namespace paceline
