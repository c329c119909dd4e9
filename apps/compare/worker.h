// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A process that trains, a few steps at a time, as another one tells it.

#include <string>
#include <vector>

namespace paceline::apps {

/// What the two processes say. The worker: hello (its team and rank, "3 1"), ready, done (the last
/// loss), record, error (why). The other: settings, record, run (steps), finish.
namespace word {
inline constexpr const char* kSettings = "settings";
inline constexpr const char* kReady = "ready";
inline constexpr const char* kRecord = "record";
inline constexpr const char* kRun = "run";
inline constexpr const char* kDone = "done";
inline constexpr const char* kFinish = "finish";
inline constexpr const char* kError = "error";
}  // namespace word

/// Command line of a worker, after the program: first this word, then the local socket's name, then
/// the number of its team.
inline constexpr const char* kWorkerArgument = "--worker";

/// Runs until it is told to finish, or the other process is gone.
///
/// @return the exit code.
[[nodiscard]] int run_worker(const std::vector<std::string>& arguments);

}  // namespace paceline::apps
