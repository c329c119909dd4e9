// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Narrowing that cannot lose a value silently.

#include <concepts>
#include <utility>

#include "paceline/base/error.h"

namespace paceline {

/// Converts between integer types.
///
/// Errors  UsageError if `value` does not fit into To.
template <std::integral To, std::integral From>
[[nodiscard]] constexpr To checked_cast(From value) {
  if (!std::in_range<To>(value)) throw UsageError("a number does not fit into its target type");
  return static_cast<To>(value);
}

}  // namespace paceline
