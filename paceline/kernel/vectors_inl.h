// SPDX-License-Identifier: Apache-2.0
// Loads, stores and 16-bit conversions of one vector, once for each SIMD target.
// Conversions are integer arithmetic, so that each target yields the same bits, or instructions
// that are tested to yield those.
// clang-format off
#if defined(PACELINE_KERNEL_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PACELINE_KERNEL_VECTORS_INL_H_
#undef PACELINE_KERNEL_VECTORS_INL_H_
#else
#define PACELINE_KERNEL_VECTORS_INL_H_
#endif
// clang-format on

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "paceline/kernel/combine_inl.h"
#include "paceline/kernel/element.h"

HWY_BEFORE_NAMESPACE();
namespace paceline::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// No target works on more than 64 bytes at once; a tail's buffers have this size.
inline constexpr std::size_t kVectorBytes = 64;

/// The vector in which arithmetic on T happens.
template <typename T>
using Tag = hn::CappedTag<Accumulator<T>, kVectorBytes / sizeof(Accumulator<T>)>;
using TagF32 = Tag<float>;
using TagI32 = hn::RebindToSigned<TagF32>;
using TagU32 = hn::RebindToUnsigned<TagF32>;
using TagU16 = hn::Rebind<std::uint16_t, TagF32>;
template <class D>
using VectorOf = hn::Vec<D>;

// Through bytes, since a misaligned T* is undefined behaviour already as a pointer.
#if HWY_TARGET == HWY_SCALAR
template <class D>
HWY_INLINE VectorOf<D> load_bytes(D d, const std::byte* from) {
  hn::TFromD<D> lane;
  std::memcpy(&lane, from, sizeof(lane));
  return hn::Set(d, lane);
}

template <class D>
HWY_INLINE void store_bytes(D, VectorOf<D> v, std::byte* to) {
  const hn::TFromD<D> lane = hn::GetLane(v);
  std::memcpy(to, &lane, sizeof(lane));
}
#else
template <class D>
HWY_INLINE VectorOf<D> load_bytes(D d, const std::byte* from) {
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
}

template <class D>
HWY_INLINE void store_bytes(D, VectorOf<D> v, std::byte* to) {
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<std::uint8_t*>(to));
}
#endif

HWY_INLINE VectorOf<TagF32> widen(BFloat16, VectorOf<TagU16> half) {
  return hn::BitCast(TagF32(), hn::ShiftLeft<16>(hn::PromoteTo(TagU32(), half)));
}

HWY_INLINE VectorOf<TagF32> widen(Float16, VectorOf<TagU16> half) {
  const TagI32 i32;
  const TagF32 f32;
  const auto rebias = hn::Set(i32, 112 << 23);
  const auto bits = hn::PromoteTo(i32, half);
  const auto magnitude = hn::And(bits, hn::Set(i32, 0x7fff));
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const auto special = hn::Add(normal, rebias);  // exponent 31 becomes 255, the payload stays
  // (1 + m/1024) · 2^-14 - 2^-14: exact, and neither operand nor result is subnormal in F32.
  const auto lifted = hn::BitCast(f32, hn::Add(normal, hn::Set(i32, 1 << 23)));
  const auto tiny = hn::BitCast(i32, hn::Sub(lifted, hn::Set(f32, 0x1p-14F)));
  const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(i32, 0x0400)), tiny, normal);
  const auto value = hn::IfThenElse(hn::Gt(magnitude, hn::Set(i32, 0x7bff)), special, finite);
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  return hn::BitCast(f32, hn::Or(value, sign));
}

/// The upper 16 bits of each lane are the nearest BF16, the lower ones are of no use.
HWY_INLINE VectorOf<TagU32> round_to_bf16(VectorOf<TagF32> v) {
  const TagU32 u32;
  const auto bits = hn::BitCast(u32, canonical(TagF32(), v));
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7fff)));
}

/// Rounded BF16 of even and odd elements, in turns.
HWY_INLINE VectorOf<TagU32> merged_bf16(VectorOf<TagF32> even, VectorOf<TagF32> odd) {
  const auto upper = hn::Set(TagU32(), 0xffff0000U);
  return hn::Or(hn::ShiftRight<16>(round_to_bf16(even)), hn::And(round_to_bf16(odd), upper));
}

HWY_INLINE VectorOf<TagU16> narrow(BFloat16, VectorOf<TagF32> v) {
  const auto rounded = hn::ShiftRight<16>(round_to_bf16(v));
  return hn::DemoteTo(TagU16(), hn::BitCast(TagI32(), rounded));
}

#undef PACELINE_KERNEL_F16C
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define PACELINE_KERNEL_F16C 1
#else
#define PACELINE_KERNEL_F16C 0
#endif

#if PACELINE_KERNEL_F16C
using TagF16 = hn::Rebind<hwy::float16_t, TagF32>;

// The instructions ignore the modes for subnormals, but keep the payload of a NaN and quiet it.
HWY_INLINE VectorOf<TagF32> widen_operand(Float16, VectorOf<TagU16> half) {
  return hn::PromoteTo(TagF32(), hn::BitCast(TagF16(), half));
}

HWY_INLINE VectorOf<TagU16> narrow(Float16, VectorOf<TagF32> v) {
  return hn::BitCast(TagU16(), hn::DemoteTo(TagF16(), canonical(TagF32(), v)));
}
#else
HWY_INLINE VectorOf<TagF32> widen_operand(Float16 type, VectorOf<TagU16> half) {
  return widen(type, half);
}

HWY_INLINE VectorOf<TagU16> narrow(Float16, VectorOf<TagF32> v) {
  const TagI32 i32;
  const TagU32 u32;
  const TagF32 f32;
  const auto bits = hn::BitCast(i32, v);
  const auto magnitude = hn::And(bits, hn::Set(i32, 0x7fffffff));
  // All from 2^16 on, infinity too, rounds like 2^16, which is the bit pattern of infinity.
  const auto capped = hn::Min(magnitude, hn::Set(i32, 0x47800000));
  const auto odd = hn::And(hn::ShiftRight<13>(capped), hn::Set(i32, 1));
  const auto biased = hn::Add(capped, hn::Add(odd, hn::Set(i32, 0x0fff - (112 << 23))));
  const auto normal = hn::ShiftRight<13>(biased);
  // Below 2^-14 the sum with 0.5 has an ulp of 2^-24, the step of F16's subnormals.
  const auto half = hn::Set(f32, 0.5F);
  const auto sum = hn::BitCast(i32, hn::Add(hn::BitCast(f32, magnitude), half));
  const auto tiny = hn::Sub(sum, hn::BitCast(i32, half));
  const auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(i32, 0x38800000)), tiny, normal);
  const auto sign =
      hn::BitCast(i32, hn::And(hn::ShiftRight<16>(hn::BitCast(u32, bits)), hn::Set(u32, 0x8000)));
  const auto nan = hn::Gt(magnitude, hn::Set(i32, 0x7f800000));
  const auto all = hn::IfThenElse(nan, hn::Set(i32, 0x7e00), hn::Or(value, sign));
  return hn::DemoteTo(TagU16(), all);
}
#endif

HWY_INLINE VectorOf<TagF32> widen_operand(BFloat16 type, VectorOf<TagU16> half) {
  return widen(type, half);
}

/// One vector of T's accumulation type from memory in `form`, exact.
template <typename T, Form form>
HWY_INLINE VectorOf<Tag<T>> load(const std::byte* from) {
  if constexpr (kIsHalf<T> && form == Form::kT) {
    return widen(T(), load_bytes(TagU16(), from));
  } else {
    return load_bytes(Tag<T>(), from);
  }
}

/// The same for an operand of arithmetic, where the bits of a NaN do not matter.
template <typename T, Form form>
HWY_INLINE VectorOf<Tag<T>> load_operand(const std::byte* from) {
  if constexpr (kIsHalf<T> && form == Form::kT) {
    return widen_operand(T(), load_bytes(TagU16(), from));
  } else {
    return load_bytes(Tag<T>(), from);
  }
}

/// Rounds, and makes NaN canonical, where `form` is 16 bits wide.
template <typename T, Form form>
HWY_INLINE void store(VectorOf<Tag<T>> v, std::byte* to) {
  if constexpr (kIsHalf<T> && form == Form::kT) {
    store_bytes(TagU16(), narrow(T(), v), to);
  } else {
    store_bytes(Tag<T>(), v, to);
  }
}

}  // namespace paceline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
