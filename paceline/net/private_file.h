// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Bytes that only this user may see: a file on disk, or memory to hand down to a child.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "paceline/net/fd.h"

namespace paceline::net {

/// Reads a regular file that belongs to this user and that nobody else may read or write.
///
/// Errors  SystemError that names the file: it is missing, not ours, open to others, no regular
///         file, or longer than `limit_bytes`.
[[nodiscard]] std::vector<std::byte> read_private_file(const std::string& path,
                                                       std::size_t limit_bytes);

/// A descriptor to bytes in memory, which vanish with their last holder and cannot be changed.
/// `name` shows up in /proc only.
///
/// Errors  SystemError.
[[nodiscard]] Fd make_sealed_memory(const std::string& name, std::span<const std::byte> content);

/// Its content up to `limit_bytes`, from the start each time it is called.
///
/// Errors  SystemError, also if `fd` is not open.
[[nodiscard]] std::vector<std::byte> read_sealed_memory(const Fd& fd, std::size_t limit_bytes);

}  // namespace paceline::net
