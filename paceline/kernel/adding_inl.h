// SPDX-License-Identifier: Apache-2.0
// Adds scaled vectors to what memory holds, once for each target.
// clang-format off
#if defined(PACELINE_KERNEL_ADDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PACELINE_KERNEL_ADDING_INL_H_
#undef PACELINE_KERNEL_ADDING_INL_H_
#else
#define PACELINE_KERNEL_ADDING_INL_H_
#endif
// clang-format on

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

#include "paceline/base/types.h"
#include "paceline/kernel/combine_inl.h"
#include "paceline/kernel/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace paceline::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// A ScaledAdd in the type of the sums.
template <typename A>
struct Adding {
  bool on;
  bool fused;
  A scale;
};

template <typename A>
HWY_INLINE Adding<A> adding_of(const ScaledAdd* adds) {
  if constexpr (std::is_floating_point_v<A>) {
    if (adds != nullptr) return {true, adds->fused, static_cast<A>(adds->scale)};
  }
  return {};
}

/// v · scale + old, rounded once, on targets too that have no instruction for it.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V multiply_add(D d, V v, V scale, V old) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(v, scale, old);
#else
  using A = hn::TFromD<D>;
  alignas(kVectorBytes) A a[kVectorBytes / sizeof(A)], b[kVectorBytes / sizeof(A)],
      c[kVectorBytes / sizeof(A)];
  hn::Store(v, d, a);
  hn::Store(scale, d, b);
  hn::Store(old, d, c);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    if constexpr (std::is_same_v<A, float>) {
      c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    } else {
      c[i] = __builtin_fma(a[i], b[i], c[i]);
    }
  }
  return hn::Load(d, c);
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V added(D d, V v, V old, Adding<hn::TFromD<D>> adding) {
  const V scale = hn::Set(d, adding.scale);
  if (adding.fused) return multiply_add(d, canonical(d, v), scale, old);
  return hn::Add(hn::Mul(canonical(d, v), scale), old);
}

}  // namespace paceline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
