// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How processes come to share memory: over connections that they have, they find out whether they
/// may, and pass each other their segments' descriptors through local sockets.

#include <memory>
#include <string>
#include <vector>

#include "paceline/base/deadline.h"
#include "paceline/link/shm/hello.h"
#include "paceline/link/shm/shm_fabric.h"
#include "paceline/net/fd.h"

namespace paceline::link {

struct MeetOptions {
  int rank = 0;
  LinkWish wish = LinkWish::kAuto;
  ShmOptions shm = {};
  Deadline deadline = Deadline::never();
};

/// Either a fabric or the reason why there is none, in the same words on every rank.
struct ShmMeeting {
  std::unique_ptr<Fabric> fabric = {};
  std::string reason = {};
};

/// Tries to join ranks by shared memory. `sockets` are connected and authenticated: [p] leads to
/// rank p, the own one is empty. They are as they were afterwards, for other uses if there is no
/// fabric.
///
/// Order   Every rank calls it. All get a fabric, or all get the same reason: another host or
///         namespace, another user, a limit of memory, the wish for tcp …
/// Errors  UsageError, the same on all ranks, if they wish for different links. CommError
///         kConnectFailed that names a rank which went away, or was silent until the deadline;
///         kMismatch if it speaks of other things.
/// Cost    Two messages of 1.5 KiB together to each rank, and a local connection per pair.
[[nodiscard]] ShmMeeting meet_over_shm(const std::vector<net::Fd>& sockets,
                                       const MeetOptions& options);

}  // namespace paceline::link
