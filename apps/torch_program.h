// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Programs beside this one that are linked to LibTorch.

#include <filesystem>
#include <string_view>

namespace paceline::apps {

/// Where the program `name` lies, which does the work of `command`.
///
/// Errors  std::runtime_error if there is none: this paceline was built without LibTorch.
[[nodiscard]] std::filesystem::path torch_program(std::string_view name, std::string_view command);

}  // namespace paceline::apps
