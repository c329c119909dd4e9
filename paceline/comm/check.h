// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A 64-bit check value over bytes. It finds accidents, it does not authenticate: the key is
/// public.

#include <cstddef>
#include <cstdint>
#include <span>

namespace paceline {

/// SipHash-2-4 under a fixed key.
[[nodiscard]] std::uint64_t check_of(std::span<const std::byte> bytes) noexcept;

}  // namespace paceline
