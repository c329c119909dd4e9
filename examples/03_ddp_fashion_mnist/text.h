// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Numbers as people read them.

#include <cstdint>
#include <string>

namespace example {

/// 1234567 as "1,234,567".
[[nodiscard]] inline std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

}  // namespace example
