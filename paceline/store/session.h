// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// One meeting of the ranks and the life of the job after it, pure: messages and the time go in,
/// messages for ranks come out. The server owns sockets; a session knows ranks only.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/deadline.h"
#include "paceline/store/hub.h"
#include "paceline/store/message.h"

namespace paceline::store {

struct SessionOptions {
  HubOptions hub;
  std::uint32_t generation = 0;
  std::string store{};  ///< where ranks meet, "10.0.0.5:29500", for errors
  std::chrono::milliseconds connect_timeout{std::chrono::seconds(60)};
};

class Session {
 public:
  using Time = Clock::time_point;
  struct Outgoing {
    int to = 0;
    Message message;
  };

  Session(const SessionOptions& options, Time now);

  /// A rank comes. Each rank comes at most once (has()).
  void admit(int rank, const Hello& hello, Time now);
  /// A message of a rank that was admitted.
  void take(int rank, const Message& message, Time now);
  /// The connection of a rank that was admitted is gone.
  void closed(int rank, Time now);
  void note_exit(int rank, const std::string& how, Time now);
  /// Ends the meeting for all, those who are still to come included.
  void fail(const Cause& cause);
  /// Words for the case that a rank never comes: what else was seen at the door.
  void set_hint(const std::string& hint) { hint_ = hint; }
  void advance(Time now);

  [[nodiscard]] Time next() const;
  [[nodiscard]] std::vector<Outgoing> take_outgoing();
  [[nodiscard]] bool has(int rank) const { return guests_.at(index(rank)).hello.has_value(); }
  [[nodiscard]] bool connected(int rank) const { return hub_.connected(rank); }
  /// Whether a connection is open, be it of a rank whose process has ended: closed() is to come.
  [[nodiscard]] bool any_open() const { return open_ != 0; }
  /// Who has not come yet or, once all have, is not connected to all others.
  [[nodiscard]] std::vector<int> missing() const;
  /// Whether all ranks are connected to each other.
  [[nodiscard]] bool running() const { return phase_ == Phase::kRunning; }
  /// Whether a cause has ended it; a rank that came to it may then open a new one.
  [[nodiscard]] bool failed() const { return hub_.cause().has_value(); }
  /// "node7 (10.0.0.5:4711)": where a rank that was admitted is.
  [[nodiscard]] std::string place_of(int rank) const;

 private:
  enum class Phase { kGathering, kLinking, kRunning };
  struct Guest {
    std::optional<Hello> hello;
    bool ready = false;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  void check_algorithm(int rank, const Hello& hello);
  void send_tables();
  void set_ready(int rank);
  void send(int rank, Message message);
  /// Before the start everybody is needed: a departure ends the meeting.
  void check_departures();
  void check_patience(Time now);
  void collect();

  SessionOptions options_;
  Hub hub_;
  std::vector<Guest> guests_;  // [world]
  int open_ = 0;               // connections: admitted, not closed
  Phase phase_ = Phase::kGathering;
  Time patience_;                       // when the least patient rank gives up
  std::chrono::milliseconds shortest_;  // the timeout that this rank was given
  std::string hint_;
  std::vector<Outgoing> outgoing_;
};

}  // namespace paceline::store
