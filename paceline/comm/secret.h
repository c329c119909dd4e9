// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where the job's secret is made, handed down and read. What is proved with it: store/.

#include <string>

#include "paceline/comm/environment.h"
#include "paceline/net/fd.h"
#include "paceline/store/join.h"

namespace paceline {

/// A secret nobody else knows.
[[nodiscard]] store::Secret make_secret();

/// The secret that a file's bytes stand for; line ends at its end do not count.
///
/// Errors  UsageError that names the file: missing, not ours, readable by others (mode beyond
///         0600), shorter than 16 bytes or above 4 KiB.
[[nodiscard]] store::Secret read_secret_file(const std::string& path);

/// A descriptor to inherit, from which read_secret() reads `secret` any number of times. No file
/// appears.
[[nodiscard]] net::Fd hand_down(const store::Secret& secret);

/// Reads what read_environment() found. An inherited descriptor stays open for a later init(), but
/// is kept from programs that this process starts.
///
/// Errors  UsageError that names the variable or the file.
[[nodiscard]] store::Secret read_secret(const SecretSource& source);

}  // namespace paceline
