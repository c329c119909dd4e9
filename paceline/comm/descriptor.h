// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What identifies a call between ranks: everything that must agree, its hash and its text.

#include <cstdint>
#include <string>

#include "paceline/base/types.h"

namespace paceline {

/// Must be equal on all ranks. Its hash rides in every frame of the call.
struct Descriptor {
  Collective what = Collective::kBarrier;
  Algorithm algorithm = Algorithm::kTree;
  ReduceOp op = ReduceOp::kSum;  ///< kSum where nothing is reduced
  Dtype dtype = Dtype::kU8;
  int root = 0;
  std::uint64_t count = 0;
  std::string label = {};

  bool operator==(const Descriptor&) const = default;
};

/// What frames and windows name a call by.
struct CallId {
  std::uint64_t sequence = 0;
  std::uint64_t hash = 0;  ///< of its descriptor
};

/// Keyed hash of all fields, never 0.
[[nodiscard]] std::uint64_t hash_of(const Descriptor& descriptor);

/// For people: `allreduce f32[1000] sum by ring "bucket 0"`.
[[nodiscard]] std::string text_of(const Descriptor& descriptor);

/// Whether `what` combines elements, so that its op means something.
[[nodiscard]] constexpr bool reduces(Collective what) noexcept {
  return what == Collective::kAllReduce || what == Collective::kReduceScatter;
}

}  // namespace paceline
