// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the kernels know about an element type at compile time. Private to kernel/ and its tests.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "paceline/base/types.h"
#include "paceline/kernel/fold.h"

namespace paceline::kernel {

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

/// The type in which sums of T are held.
template <typename T>
using Accumulator = std::conditional_t<kIsHalf<T>, float, T>;

/// Bytes of one element of T in `form`.
template <typename T, Form form>
inline constexpr std::size_t kSize = form == Form::kT ? sizeof(T) : sizeof(Accumulator<T>);

// Partial sums that do not fit registers wait in blocks of this size, in the first-level cache.
inline constexpr std::size_t kBlockBytes = 4096;
// Operands are fetched so far ahead: a core's own prefetcher stops where a page ends.
inline constexpr std::size_t kAheadBytes = 4096;
inline constexpr std::size_t kLineBytes = 64;

/// The arguments of fold().
struct Fold {
  ReduceOp op;
  int world;
  std::size_t count;
  const Term* terms;
  std::size_t term_count;
  const Target* targets;
  std::size_t target_count;
  const ScaledAdd* adds;  ///< none: results replace what is there
};

/// Two operands and a place for the result; element sizes follow from the forms.
struct Pair {
  const std::byte* a;
  const std::byte* b;
  std::byte* out;
  std::size_t count;
  int world;
};

struct PairForms {
  Form a;
  Form b;
  Form out;
};

}  // namespace paceline::kernel
