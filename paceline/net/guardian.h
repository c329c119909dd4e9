// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Sees to it that nothing of a job outlives this process, even if it is killed by SIGKILL.

#include "paceline/net/fd.h"
#include "paceline/net/job.h"

namespace paceline::net {

/// A small process that waits for this one to end and then kills the groups it was told of, and
/// what has left them but carries the job's id. The kernel kills direct children by itself
/// (spawn()); what those have started needs this.
///
/// Destroying it dismisses it: the job is then somebody else's business.
///
/// Threads  One at a time. Make it before other threads start.
class Guardian {
 public:
  /// Errors  SystemError.
  explicit Guardian(Job& job);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  ~Guardian();

  /// Adds the process group that `leader` leads.
  void watch(int leader);

 private:
  int pid_ = -1;
  Fd line_;
};

}  // namespace paceline::net
