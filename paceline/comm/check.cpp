// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/check.h"

#include <sodium.h>

#include <array>
#include <bit>

namespace paceline {
std::uint64_t check_of(std::span<const std::byte> bytes) noexcept {
  static constexpr std::array<unsigned char, crypto_shorthash_KEYBYTES> kKey{
      'p', 'a', 'c', 'e', 'l', 'i', 'n', 'e', '-', 'f', 'r', 'a', 'm', 'e', '-', '1'};
  std::array<unsigned char, crypto_shorthash_BYTES> hash{};
  crypto_shorthash(hash.data(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                   kKey.data());
  return std::bit_cast<std::uint64_t>(hash);
}
}  // namespace paceline
