// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// One contestant's processes, as the process that compares sees them.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/compare/connection.h"
#include "apps/compare/meeting_place.h"
#include "apps/compare/process_count.h"
#include "apps/compare/record.h"
#include "paceline/net/child.h"

namespace paceline::apps {

/// Owns the processes: they end with it.
///
/// Errors   Each member: std::runtime_error that names the contestant and says what its process
///          said, or how it ended.
/// Threads  One at a time: that which made it must outlive it.
class Team {
 public:
  /// Starts them and returns once all are ready to train. `number` tells it from other teams.
  Team(const TrainingSettings& settings, const MeetingPlace& place, int number);

  /// Trains so many steps. @return the last loss, the mean over ranks.
  double run(std::int64_t steps);

  /// What was trained so far was for warming up.
  void start_recording();

  [[nodiscard]] ProcessCount count() const;

  /// Lets them end. @return what each wrote down, by rank.
  [[nodiscard]] std::vector<ProcessRecord> finish();

  [[nodiscard]] const Contestant& contestant() const noexcept { return contestant_; }

 private:
  void accept_all(const MeetingPlace& place, int number);
  void adopt(const MeetingPlace& place, int number);
  void say(const char* what, const std::string& body);
  [[nodiscard]] std::string hear(std::size_t rank,
                                 const char* expected,
                                 std::chrono::minutes limit);
  [[noreturn]] void fail(const std::string& why) const;
  void fail_if_stopped() const;
  [[noreturn]] void fail_by_end(const std::string& what);

  Contestant contestant_;
  std::vector<std::optional<Connection>> ranks_;
  net::Child child_;
};

}  // namespace paceline::apps
