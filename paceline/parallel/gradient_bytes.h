// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How many bytes of gradients needed a copy.

#include <cstdint>

namespace paceline {

/// Of gradients, as their parameters' sizes say.
struct GradientBytes {
  std::uint64_t in_place = 0;  ///< were averaged where backward had left them
  std::uint64_t copied = 0;    ///< were copied first
};

}  // namespace paceline
