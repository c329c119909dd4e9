// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Sees to it that no process group outlives this process, even if it is killed by SIGKILL.

#include "paceline/net/fd.h"

namespace paceline::net {

/// A small process that waits for this one to end and then kills the groups it was told of. The
/// kernel kills direct children by itself (spawn()); what those have started needs this.
///
/// Destroying it dismisses it: the groups are then somebody else's business.
///
/// Threads  One at a time. Make it before other threads start.
class Guardian {
 public:
  /// Errors  SystemError.
  Guardian();
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
