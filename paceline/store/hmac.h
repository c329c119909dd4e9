// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Keys, keyed checks and random numbers: the only place of this room that sees libsodium.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace paceline::store {

inline constexpr std::size_t kKeyBytes = 32;
using Key = std::array<std::byte, kKeyBytes>;
using Mac = std::array<std::byte, 32>;

/// HMAC-SHA256 of `label` and the concatenation of `parts`.
[[nodiscard]] Mac hmac(const Key& key,
                       std::string_view label,
                       std::initializer_list<std::span<const std::byte>> parts);

/// Compares in a time that does not depend on the bytes.
[[nodiscard]] bool equal_in_constant_time(const Mac& a, std::span<const std::byte> b);

void fill_random(std::span<std::byte> bytes);

/// A random number other than 0.
[[nodiscard]] std::uint32_t random_nonzero();

}  // namespace paceline::store
