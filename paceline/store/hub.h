// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The brain of the control channel, pure: what ranks say and the time go in, events for ranks come
/// out. The first cause wins. Who carries the events, and over what, is not its business.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/deadline.h"
#include "paceline/store/control.h"

namespace paceline::store {

struct HubOptions {
  int world = 1;
  /// How long the hub waits for the ranks' answers before it judges without them.
  std::chrono::milliseconds answer_limit{1000};
  /// How long it waits for note_exit() before it reports that a rank has gone.
  std::chrono::milliseconds departure_grace{100};
  /// A rank that says nothing for so long is reported; none: never.
  std::optional<std::chrono::milliseconds> silence_limit{std::chrono::seconds(30)};
};

/// Threads  One at a time.
class Hub {
 public:
  using Time = Clock::time_point;
  struct Delivery {
    int to = 0;
    Event event;
  };

  Hub(const HubOptions& options, Time now);

  // What happens. Ranks outside the world are ignored.
  void joined(int rank, Time now);
  void published(int rank, const Standing& standing, Time now);
  void reported(int rank, Cause cause, Time now);
  void heard(int rank, Time now);
  void closed(int rank, Time now);
  void note_exit(int rank, const std::string& how, Time now);
  /// A cause of the hub's own finding.
  void settle(const Cause& cause);
  /// Does what is due by `now`.
  void advance(Time now);

  /// When advance() has to be called next, at the latest.
  [[nodiscard]] Time next() const;
  /// Gives each event once, per rank in the order of happening.
  [[nodiscard]] std::vector<Delivery> take_deliveries();
  [[nodiscard]] const std::optional<Cause>& cause() const { return cause_; }
  /// Whether the rank is connected.
  [[nodiscard]] bool connected(int rank) const;
  /// How a rank went, once it has: "rank 1 was killed by SIGKILL".
  [[nodiscard]] const std::optional<std::string>& departure(int rank) const;

 private:
  struct Member {
    bool connected = false;
    bool silent = false;  // reported as such
    Time heard{};
    std::optional<Time> leaves;  // going: when it counts as gone at the latest
    std::string exit_words;
    std::optional<std::string> departure;
    std::map<std::uint64_t, Standing> standings;  // the last few, by sequence
    std::optional<Standing> latest;
  };
  struct Inquiry {
    Time until;
    int starter = -1;
    std::optional<Cause> timeout;  // what to report if no difference is found
    std::vector<bool> waiting;     // [world] asked, has not answered
    std::vector<bool> answered;    // [world]
  };
  using Inquiries = std::map<std::uint64_t, Inquiry>;

  Member* member(int rank);
  void store_standing(Member& member, const Standing& standing);
  void open_inquiry(std::uint64_t sequence, int starter, std::optional<Cause> timeout, Time now);
  /// Judges and forgets the inquiry if nobody is left to answer.
  void conclude_if_answered(Inquiries::iterator inquiry);
  void conclude(Inquiries::iterator inquiry);
  void depart(int rank);
  void advance_inquiries(Time now);
  void advance_departures(Time now);
  void advance_silence(Time now);
  void deliver_to_others(int rank, const Event& event);
  [[nodiscard]] std::optional<Cause> difference(std::uint64_t sequence, int starter) const;
  [[nodiscard]] Cause name_absent(const Cause& timeout, const Inquiry& inquiry) const;
  [[nodiscard]] std::string whereabouts(int rank, std::uint64_t sequence, bool answered) const;

  HubOptions options_;
  std::vector<Member> members_;
  Inquiries inquiries_;
  std::optional<Cause> cause_;
  std::vector<Delivery> deliveries_;
  Time advanced_;
};

}  // namespace paceline::store
