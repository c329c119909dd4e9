// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The environment of a rank: what comm/environment.h reads.

#include <string>
#include <string_view>
#include <vector>

#include "apps/launcher/meeting.h"
#include "apps/launcher/options.h"

namespace paceline::apps {

/// `base` ("NAME=value") with the id of a job in PACELINE_JOB, behind those of jobs around it: who
/// belongs to this one belongs to them too.
[[nodiscard]] std::vector<std::string> with_job(const std::vector<std::string>& base,
                                                std::string_view id);

/// `base` with the variables of local rank `local_rank` set, whatever a site had
/// set before. `terminal_columns` is 0 unless our standard output is a terminal.
[[nodiscard]] std::vector<std::string> rank_environment(const std::vector<std::string>& base,
                                                        const RunOptions& options,
                                                        const Meeting& meeting,
                                                        int local_rank,
                                                        std::size_t terminal_columns);

}  // namespace paceline::apps
