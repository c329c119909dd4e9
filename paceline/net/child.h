// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Child processes for the launcher: each in its own process group, none outlives its parent.

#include <optional>
#include <string>
#include <vector>

#include "paceline/base/deadline.h"
#include "paceline/net/fd.h"

namespace paceline::net {

/// How a process ended: by itself with `code`, or by `signal` (then not 0).
struct ExitStatus {
  int code = 0;
  int signal = 0;
  [[nodiscard]] bool ok() const noexcept { return code == 0 && signal == 0; }
  /// What a shell reports: the code, or 128 + the signal.
  [[nodiscard]] int shell_code() const noexcept { return signal != 0 ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

/// Where the child's standard output and error go.
enum class ChildOutput { kPipes, kInherited };

struct SpawnOptions {
  ChildOutput output = ChildOutput::kPipes;
  /// Stay open in the child under the same numbers (which must be above 2): pass these by name in
  /// its environment.
  std::vector<const Fd*> inherit = {};
};

/// A running or ended child. Its number stays reserved until the Child is destroyed, so that
/// signals never meet a stranger. Destroying it kills the whole group.
///
/// Threads  One at a time.
class Child {
 public:
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();

  [[nodiscard]] int pid() const noexcept { return pid_; }
  /// Readable from the child's end on, for ever: drop it from poll() once try_wait() answers.
  [[nodiscard]] const Fd& ended() const noexcept { return pidfd_; }
  /// Non-blocking read ends, empty unless ChildOutput::kPipes. The caller may move them out.
  [[nodiscard]] Fd& standard_output() noexcept { return output_; }
  [[nodiscard]] Fd& standard_error() noexcept { return error_; }

  /// How it ended, if it has.
  [[nodiscard]] std::optional<ExitStatus> try_wait();
  /// The same, after sleeping until it ends; empty at the deadline.
  [[nodiscard]] std::optional<ExitStatus> wait(Deadline deadline);

  /// The signal that has stopped it, if it stands still now.
  [[nodiscard]] std::optional<int> stopped_by() const;

  /// Sends `signal` to the child, if it still runs.
  void signal(int signal) noexcept;
  /// Sends it to the child's group: also to what the child left behind.
  void signal_group(int signal) noexcept;

 private:
  friend Child spawn(const std::string&,
                     const std::vector<std::string>&,
                     const std::vector<std::string>&,
                     const SpawnOptions&);
  Child(int pid, Fd pidfd, Fd output, Fd error) noexcept;
  void end() noexcept;

  int pid_ = -1;
  Fd pidfd_;
  Fd output_;
  Fd error_;
  std::optional<ExitStatus> status_;
};

/// The path of `program`: itself if it holds a slash, else looked up on `environment`'s PATH.
///
/// Errors  SystemError that names the program and why it could not start: not found, not
///         executable, a directory.
[[nodiscard]] std::string find_program(const std::string& program,
                                       const std::vector<std::string>& environment);

/// Starts `program` (looked up on `environment`'s PATH unless it holds a slash) with `arguments`
/// and exactly `environment` ("NAME=value"). Standard input is empty, no signal is blocked, SIGPIPE
/// and SIGXFSZ have their default. The kernel kills the child when the calling *thread* ends: call
/// it from one that lives as long as the children.
///
/// Errors  SystemError that names the program and why it could not start: not found, not
///         executable, a directory, a missing interpreter. UsageError if an inherited descriptor is
///         empty or below 3.
/// Threads Any; other threads may run meanwhile.
[[nodiscard]] Child spawn(const std::string& program,
                          const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment,
                          const SpawnOptions& options = {});

}  // namespace paceline::net
