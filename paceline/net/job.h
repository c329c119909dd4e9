// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// All processes that come from one job, wherever they have gone.

#include <array>
#include <string_view>

namespace paceline::net {

/// An id that the processes of a job carry in their environment. Process groups, sessions and
/// parents can be left; the environment goes along, and needs no ancestor that is still alive.
///
/// Destroying it kills what is left of the job.
///
/// Threads  One at a time.
class Job {
 public:
  /// A new, random id.
  /// Errors  SystemError.
  Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  /// 32 hexadecimal digits: put them into the environment of what belongs to the job.
  [[nodiscard]] std::string_view id() const noexcept { return {id_.data(), id_.size()}; }

  /// Sends SIGKILL to all processes of this user whose environment holds the id, and again to
  /// those that they make meanwhile, until none is found or two seconds are over. Allocates
  /// nothing. Who starts with another environment escapes.
  void kill() noexcept;

 private:
  const std::array<char, 32> id_;
  bool killed_ = false;
};

}  // namespace paceline::net
