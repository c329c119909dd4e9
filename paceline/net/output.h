// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Files and streams that are only written to.

#include <string>
#include <string_view>

#include "paceline/net/fd.h"

namespace paceline::net {

/// Makes the file `path`, or empties it.
///
/// Errors  SystemError that names it.
[[nodiscard]] Fd create_file(const std::string& path);

/// Writes all of `text`, sleeping while nothing fits.
///
/// @return 0, or the errno value that says why the rest of it was not written.
[[nodiscard]] int write_all(const Fd& fd, std::string_view text) noexcept;

/// From now on, writing to a pipe that nobody reads, or beyond the limit of file size, is an error
/// of that call instead of a signal that ends this process. Children made by spawn() start with
/// both signals as usual.
void turn_write_signals_into_errors() noexcept;

}  // namespace paceline::net
