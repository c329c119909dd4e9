// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the server decides about those who come to its door: into which session, or out.

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "paceline/store/half_open.h"
#include "paceline/store/join.h"
#include "paceline/store/session.h"

namespace paceline::store {

/// The sessions of one server, oldest first. Pure: no sockets.
///
/// A rank may come again when its communicator has failed or is gone: it then opens the next
/// meeting, to which all ranks must come again.
class Reception {
 public:
  using Time = Clock::time_point;

  /// `store` is where ranks meet, for errors.
  Reception(const ServerOptions& options, std::string store)
      : options_(options), store_(std::move(store)) {}

  /// Where `rank` belongs, or nothing and the reason in `refusal`.
  [[nodiscard]] Session* welcome(int rank, const Hello& hello, Time now, std::string& refusal);
  /// Somebody of this job came with terms that do not fit: an open meeting can never be complete.
  void turn_away(const Offender& offender, Time now);
  /// Somebody who may or may not be of this job was refused. The meeting goes on, else a stranger
  /// could end it; the ranks that wait in vain and take_notices() tell of it.
  void note_stranger(const Stranger& stranger);
  /// What a person should know while ranks are missing; each text once per meeting, a few at most.
  [[nodiscard]] std::vector<std::string> take_notices();
  void note_exit(int rank, const std::string& how, Time now);
  void advance(Time now);
  /// Forgets sessions without an open connection, but for the newest. Who holds a connection may
  /// thus hold its session.
  void forget_finished();

  [[nodiscard]] Time next() const;
  [[nodiscard]] std::list<Session>& sessions() { return sessions_; }

 private:
  Session& open(Time now);
  /// Ranks that the others wait for.
  [[nodiscard]] std::vector<int> awaited() const;
  void notice(const std::string& host, const std::string& reason);

  ServerOptions options_;
  std::string store_;
  std::list<Session> sessions_;
  std::map<int, std::string> exits_;  // ranks whose process has ended
  std::string hint_;
  std::set<std::string> noticed_;  // in this meeting
  std::vector<std::string> notices_;
};

}  // namespace paceline::store
