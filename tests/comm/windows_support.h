// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the tests of collectives over windows share: the link, and how many ranks.

#include "paceline/comm/init.h"

namespace paceline::test {

inline constexpr LocalOptions kShm{.link = LocalLink::kShm};
#if defined(__SANITIZE_THREAD__)
inline constexpr int kMostRanks = 3;  // else it takes minutes
#else
inline constexpr int kMostRanks = 8;
#endif

}  // namespace paceline::test
