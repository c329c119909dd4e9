// SPDX-License-Identifier: Apache-2.0
// Arithmetic on one vector: sum, minimum, maximum, division, canonical NaN, once for each target.
// clang-format off
#if defined(PACELINE_KERNEL_COMBINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PACELINE_KERNEL_COMBINE_INL_H_
#undef PACELINE_KERNEL_COMBINE_INL_H_
#else
#define PACELINE_KERNEL_COMBINE_INL_H_
#endif
// clang-format on

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "paceline/base/types.h"

HWY_BEFORE_NAMESPACE();
namespace paceline::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
inline constexpr bool kFloats = std::is_floating_point_v<hn::TFromD<D>>;

/// Any NaN becomes the quiet one with sign 0 and an empty payload.
template <class D>
HWY_INLINE hn::Vec<D> canonical(D d, hn::Vec<D> v) {
  if constexpr (kFloats<D>) {
    using Bits = hn::TFromD<hn::RebindToUnsigned<D>>;
    constexpr Bits kQuiet =
        sizeof(Bits) == 4 ? Bits{0x7fc00000U} : static_cast<Bits>(0x7ff8000000000000U);
    const auto quiet = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kQuiet));
    return hn::IfThenElse(hn::IsNaN(v), quiet, v);
  } else {
    return v;
  }
}

/// Integers that are ordered as the floats are, with -0 below +0.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> order_key(D, hn::Vec<D> v) {
  const hn::RebindToSigned<D> keys;
  const hn::RebindToUnsigned<D> unsigned_keys;
  const auto bits = hn::BitCast(keys, v);
  const auto negative = hn::BitCast(unsigned_keys, hn::BroadcastSignBit(bits));
  return hn::Xor(bits, hn::BitCast(keys, hn::ShiftRight<1>(negative)));
}

template <class D>
HWY_INLINE hn::Vec<D> minimum(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (kFloats<D>) {
    const auto less = hn::Lt(order_key(d, a), order_key(d, b));
    const auto smaller = hn::IfThenElse(hn::RebindMask(d, less), a, b);
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, smaller));
  } else {
    return hn::Min(a, b);
  }
}

template <class D>
HWY_INLINE hn::Vec<D> maximum(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (kFloats<D>) {
    return hn::Neg(minimum(d, hn::Neg(a), hn::Neg(b)));
  } else {
    return hn::Max(a, b);
  }
}

/// a (op) b; kMean only adds. A NaN stays one, its bits do not matter yet.
template <ReduceOp op, class D>
HWY_INLINE hn::Vec<D> combine(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (op == ReduceOp::kMin) {
    return minimum(d, a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    return maximum(d, a, b);
  } else if constexpr (kFloats<D>) {
    return hn::Add(a, b);
  } else {
    const hn::RebindToUnsigned<D> wrapping;
    return hn::BitCast(d, hn::Add(hn::BitCast(wrapping, a), hn::BitCast(wrapping, b)));
  }
}

}  // namespace paceline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
