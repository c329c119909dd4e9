// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where this process runs.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::net {

[[nodiscard]] std::string host_name();
/// Cores this process may use: its affinity, cut by the CPU quota of its control groups; at
/// least 1.
[[nodiscard]] int usable_cores();
[[nodiscard]] int process_id() noexcept;
/// This process's own, as "NAME=value".
[[nodiscard]] std::vector<std::string> environment_variables();
[[nodiscard]] std::uint32_t user_id() noexcept;
/// What two processes must have alike to share memory, one "word: value" a line: this boot of this
/// host ("host"), and the namespaces of network, ipc, user and pid ("network namespace" …).
[[nodiscard]] std::string host_identity();

/// 32 random hexadecimal digits, from the system's source for secrets.
///
/// Errors  SystemError.
[[nodiscard]] std::array<char, 32> random_digits();

/// Whole cores of a control group's "cpu.max" ("250000 100000" is 2; at least 1); empty if
/// unlimited or unreadable.
[[nodiscard]] std::optional<int> cores_of_quota(std::string_view cpu_max);

}  // namespace paceline::net
