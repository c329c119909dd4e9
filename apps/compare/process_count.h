// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Processes and threads, counted from the system.

#include <filesystem>

namespace paceline::apps {

struct ProcessCount {
  int processes = 0;
  int threads = 0;
};

/// This program's own file.
///
/// Errors  std::runtime_error if the system does not tell.
[[nodiscard]] std::filesystem::path this_program();

/// The processes that run `program` among `ancestor` and all that came from it, and their threads.
/// One that ends meanwhile counts or not.
///
/// Errors  std::runtime_error if the system does not tell.
[[nodiscard]] ProcessCount count_processes(int ancestor, const std::filesystem::path& program);

}  // namespace paceline::apps
