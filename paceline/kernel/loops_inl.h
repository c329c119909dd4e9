// SPDX-License-Identifier: Apache-2.0
// What happens to one vector of operands, and the one loop over all of them, once for each target.
// clang-format off
#if defined(PACELINE_KERNEL_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PACELINE_KERNEL_LOOPS_INL_H_
#undef PACELINE_KERNEL_LOOPS_INL_H_
#else
#define PACELINE_KERNEL_LOOPS_INL_H_
#endif
// clang-format on

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "paceline/base/types.h"
#include "paceline/kernel/combine_inl.h"
#include "paceline/kernel/element.h"
#include "paceline/kernel/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace paceline::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// What sums in A are divided by.
template <typename A>
struct Divisor {
  A world;
  A inverse;
  bool exact;  // a power of two's inverse is: the product is rounded from the same number
};

template <typename A>
HWY_INLINE Divisor<A> divisor(int world) {
  if constexpr (std::is_floating_point_v<A>) {
    return {static_cast<A>(world), 1 / static_cast<A>(world), (world & (world - 1)) == 0};
  } else {
    return {};  // integers are never divided, and 256 ranks would be none as a U8
  }
}

template <class D>
HWY_INLINE hn::Vec<D> divided(D d, hn::Vec<D> v, Divisor<hn::TFromD<D>> by) {
  return by.exact ? hn::Mul(v, hn::Set(d, by.inverse)) : hn::Div(v, hn::Set(d, by.world));
}

template <ReduceOp op, class D>
HWY_INLINE hn::Vec<D> divide_mean(D d, hn::Vec<D> v, Divisor<hn::TFromD<D>> by) {
  if constexpr (op == ReduceOp::kMean) {
    return divided(d, v, by);
  } else {
    return v;
  }
}

template <typename T, ReduceOp op, Form out>
HWY_INLINE void finish_and_store(hn::Vec<Tag<T>> v, Divisor<Accumulator<T>> by, std::byte* to) {
  v = divide_mean<op>(Tag<T>(), v, by);
  if constexpr (!kIsHalf<T> || out == Form::kSum) v = canonical(Tag<T>(), v);
  store<T, out>(v, to);
}

/// out = a (op) b for one vector.
template <typename T, ReduceOp op, Form fa, Form fb, Form out>
struct Combine {
  using Sum = Accumulator<T>;
  static HWY_INLINE std::size_t lanes() { return hn::Lanes(Tag<T>()); }
  static constexpr std::size_t kA = kSize<T, fa>;
  static constexpr std::size_t kB = kSize<T, fb>;
  static constexpr std::size_t kOut = kSize<T, out>;
  static HWY_INLINE void step(const std::byte* a,
                              const std::byte* b,
                              Divisor<Sum> by,
                              std::byte* to) {
    const auto result = combine<op>(Tag<T>(), load_operand<T, fa>(a), load_operand<T, fb>(b));
    finish_and_store<T, op, out>(result, by, to);
  }
};

#if HWY_TARGET != HWY_SCALAR
/// The same for BF16 from T into T: even and odd elements apart, without a shuffle, as a BF16 is
/// the upper half of an F32.
template <ReduceOp op>
struct CombineBFloat16 {
  using Sum = float;
  static HWY_INLINE std::size_t lanes() { return 2 * hn::Lanes(TagF32()); }
  static constexpr std::size_t kA = 2;
  static constexpr std::size_t kB = 2;
  static constexpr std::size_t kOut = 2;
  static HWY_INLINE hn::Vec<TagF32> combined(hn::Vec<TagU32> a,
                                             hn::Vec<TagU32> b,
                                             Divisor<float> by) {
    const TagF32 f32;
    const auto result = combine<op>(f32, hn::BitCast(f32, a), hn::BitCast(f32, b));
    return divide_mean<op>(f32, result, by);
  }
  static HWY_INLINE void step(const std::byte* a,
                              const std::byte* b,
                              Divisor<Sum> by,
                              std::byte* to) {
    const auto upper = hn::Set(TagU32(), 0xffff0000U);
    const auto va = load_bytes(TagU32(), a);
    const auto vb = load_bytes(TagU32(), b);
    const auto even = combined(hn::ShiftLeft<16>(va), hn::ShiftLeft<16>(vb), by);
    const auto odd = combined(hn::And(va, upper), hn::And(vb, upper), by);
    store_bytes(TagU32(), merged_bf16(even, odd), to);
  }
};
#endif

/// Changes the form of one term: widens, or finishes a sum.
template <typename T, ReduceOp op, Form from, Form out>
struct Convert {
  using Sum = Accumulator<T>;
  static HWY_INLINE std::size_t lanes() { return hn::Lanes(Tag<T>()); }
  static constexpr std::size_t kA = kSize<T, from>;
  static constexpr std::size_t kB = 0;
  static constexpr std::size_t kOut = kSize<T, out>;
  static HWY_INLINE void step(const std::byte* a,
                              const std::byte*,
                              Divisor<Sum> by,
                              std::byte* to) {
    const auto v = load<T, from>(a);
    if constexpr (out == Form::kSum) {
      store<T, out>(v, to);
    } else {
      finish_and_store<T, op, out>(v, by, to);
    }
  }
};

template <class Step>
HWY_INLINE void step_at(std::size_t i,
                        const std::byte* a,
                        const std::byte* b,
                        Divisor<typename Step::Sum> by,
                        std::byte* out) {
  Step::step(a + i * Step::kA, b + i * Step::kB, by, out + i * Step::kOut);
}

/// Has the lines at [from, from + bytes) fetched, kAheadBytes before their turn.
HWY_INLINE void fetch_ahead(const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLineBytes) hwy::Prefetch(from + kAheadBytes + i);
}

/// Of `count` elements of `size` bytes those that have kAheadBytes of them behind: what lies beyond
/// may be another core's work, and is left alone.
HWY_INLINE std::size_t count_to_fetch(std::size_t count, std::size_t size) {
  const std::size_t ahead = kAheadBytes / size;
  return count < ahead ? 0 : count - ahead;
}

/// Steps over whole vectors. Each is loaded before it is stored, so `out` may be an operand.
template <class Step>
HWY_NOINLINE void run_vectors(
    const std::byte* a, const std::byte* b, std::byte* out, std::size_t count, int world) {
  const std::size_t lanes = Step::lanes();
  const auto by = divisor<typename Step::Sum>(world);
  constexpr std::size_t kSmaller = Step::kB == 0 || Step::kA < Step::kB ? Step::kA : Step::kB;
  const std::size_t fetched = count_to_fetch(count, kSmaller);
  std::size_t i = 0;
  for (; i < fetched; i += 2 * lanes) {
    fetch_ahead(a + i * Step::kA, 2 * lanes * Step::kA);
    fetch_ahead(b + i * Step::kB, 2 * lanes * Step::kB);
    step_at<Step>(i, a, b, by, out);
    step_at<Step>(i + lanes, a, b, by, out);
  }
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    step_at<Step>(i, a, b, by, out);
    step_at<Step>(i + lanes, a, b, by, out);
  }
  for (; i < count; i += lanes) step_at<Step>(i, a, b, by, out);
}

using Vectors =
    void (*)(const std::byte* a, const std::byte* b, std::byte* out, std::size_t count, int world);

/// Lanes of one step and bytes of one element of each operand.
struct Layout {
  std::size_t lanes;
  std::size_t a;
  std::size_t b;
  std::size_t out;
};

/// Whole vectors in place, what is left through memory of our own.
inline void run_with(Vectors vectors, const Layout& layout, const Pair& pair) {
  const std::size_t left = pair.count % layout.lanes;
  const std::size_t whole = pair.count - left;
  if (whole != 0) vectors(pair.a, pair.b, pair.out, whole, pair.world);
  if (left == 0) return;
  alignas(kVectorBytes) std::byte a[kVectorBytes] = {};
  alignas(kVectorBytes) std::byte b[kVectorBytes] = {};
  alignas(kVectorBytes) std::byte result[kVectorBytes];
  std::memcpy(a, pair.a + whole * layout.a, left * layout.a);
  std::memcpy(b, pair.b + whole * layout.b, left * layout.b);
  vectors(a, b, result, layout.lanes, pair.world);
  std::memcpy(pair.out + whole * layout.out, result, left * layout.out);
}

template <class Step>
void run(const Pair& pair) {
  run_with(run_vectors<Step>, {Step::lanes(), Step::kA, Step::kB, Step::kOut}, pair);
}

}  // namespace paceline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
