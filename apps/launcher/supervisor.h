// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Starts the ranks of this host, passes their output and our signals on, and ends all when one
/// fails.

#include "apps/launcher/options.h"

namespace paceline::apps {

/// Runs the job and reports its end on standard error, the headline last.
///
/// When a rank fails, the others get a second to say so themselves, then SIGTERM, then, after the
/// grace, SIGKILL, each with its whole process group. SIGINT, SIGTERM, SIGHUP and SIGQUIT are
/// passed on and start the grace; a second one kills. SIGUSR1 and SIGUSR2 are only passed on. If
/// nobody reads our output any more, the ranks get SIGTERM and the grace. If we are killed, the
/// kernel and a guardian end all ranks. What ranks leave running ends with the job.
///
/// @return the exit code: the first failing rank's, or 128 + its signal; else 1 if output was lost,
/// or 0. 127 if there is no such program, 126 if it cannot run.
///
/// Errors  UsageError that names the flag, the variable or the file.
[[nodiscard]] int launch(const RunOptions& options);

}  // namespace paceline::apps
