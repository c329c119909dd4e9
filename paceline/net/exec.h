// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Becoming another program.

#include <string>
#include <vector>

namespace paceline::net {

/// Replaces this program by `program` (a path) with `arguments` and this process's environment.
/// Process, standard streams and parent stay; every other descriptor of ours is closed.
///
/// Errors  SystemError that names it and why it could not start.
[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace paceline::net
