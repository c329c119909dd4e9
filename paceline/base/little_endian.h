// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Integers as little-endian bytes, whatever the host.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace paceline {

template <std::unsigned_integral T>
void store_le(std::span<std::byte, sizeof(T)> out, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

template <std::unsigned_integral T>
[[nodiscard]] T load_le(std::span<const std::byte, sizeof(T)> in) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<std::uint64_t>(in[i]) << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace paceline
