// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What sits behind standard output and error.

#include <cstddef>
#include <optional>
#include <string_view>

namespace paceline::net {

enum class StandardStream { kOutput = 1, kError = 2 };

/// Opens /dev/null on each of standard input, output and error that is closed, so that no socket or
/// pipe gets its number. First thing in a program that others start.
void open_missing_standard_streams() noexcept;

[[nodiscard]] bool is_terminal(StandardStream stream) noexcept;

/// Characters in a line of the terminal behind `stream`; empty if it is none.
[[nodiscard]] std::optional<std::size_t> terminal_columns(StandardStream stream) noexcept;

/// write_all() to `stream`.
[[nodiscard]] int write_standard(StandardStream stream, std::string_view text) noexcept;

}  // namespace paceline::net
