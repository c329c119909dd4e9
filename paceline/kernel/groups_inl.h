// SPDX-License-Identifier: Apache-2.0
// Sums of up to eight terms in registers, groups of eight beyond, once for each target. Terms and
// targets are all in Form::kT, or both forms are the same.
// clang-format off
#if defined(PACELINE_KERNEL_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PACELINE_KERNEL_GROUPS_INL_H_
#undef PACELINE_KERNEL_GROUPS_INL_H_
#else
#define PACELINE_KERNEL_GROUPS_INL_H_
#endif
// clang-format on

#include <hwy/highway.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "paceline/base/types.h"
#include "paceline/kernel/adding_inl.h"
#include "paceline/kernel/combine_inl.h"
#include "paceline/kernel/element.h"
#include "paceline/kernel/loops_inl.h"
#include "paceline/kernel/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace paceline::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// More terms at once would be more streams than the first-level cache has ways.
inline constexpr std::size_t kGroupTerms = 8;
// Vectors of sums that are in flight.
inline constexpr std::size_t kGroupVectors = 4;
inline constexpr std::size_t kGroupBytes = kGroupVectors * kVectorBytes;

/// Elements [begin, end) of a group of terms; `sums` holds them from `begin` on.
struct Group {
  const Term* terms;
  std::size_t term_count;
  const Target* targets;
  std::size_t target_count;
  std::byte* sums;
  bool from_sums;  // they come before the first term
  bool to_sums;    // the result goes there instead of into the targets
  bool divided;    // the result is, by `world`
  const ScaledAdd* adds;
  int world;
  std::size_t begin;
  std::size_t end;
};

/// Four vectors of sums. Not a struct of them: some targets have vectors without a size.
template <typename T>
struct Quad {
  using D = Tag<T>;
  using V = VectorOf<D>;
  static HWY_INLINE void load_sums(const std::byte* from, V& a, V& b, V& c, V& d) {
    const std::size_t step = hn::Lanes(D()) * sizeof(Accumulator<T>);
    a = load_bytes(D(), from);
    b = load_bytes(D(), from + step);
    c = load_bytes(D(), from + 2 * step);
    d = load_bytes(D(), from + 3 * step);
  }
  static HWY_INLINE void store_sums(V a, V b, V c, V d, std::byte* to) {
    const std::size_t step = hn::Lanes(D()) * sizeof(Accumulator<T>);
    store_bytes(D(), a, to);
    store_bytes(D(), b, to + step);
    store_bytes(D(), c, to + 2 * step);
    store_bytes(D(), d, to + 3 * step);
  }
  static HWY_INLINE void load(const std::byte* from, V& a, V& b, V& c, V& d) {
    const std::size_t step = hn::Lanes(D()) * sizeof(T);
    a = load_operand<T, Form::kT>(from);
    b = load_operand<T, Form::kT>(from + step);
    c = load_operand<T, Form::kT>(from + 2 * step);
    d = load_operand<T, Form::kT>(from + 3 * step);
  }
  static HWY_INLINE void store(V a, V b, V c, V d, std::size_t at, const Group& group) {
    if constexpr (kIsHalf<T>) {
      store_all(TagU16(), narrow(T(), a), narrow(T(), b), narrow(T(), c), narrow(T(), d), at,
                group);
    } else {
      const D tag;
      store_all(tag, canonical(tag, a), canonical(tag, b), canonical(tag, c), canonical(tag, d), at,
                group);
    }
  }

 private:
  template <class Stored, class W = VectorOf<Stored>>
  static HWY_INLINE void store_all(
      Stored tag, W a, W b, W c, W d, std::size_t at, const Group& group) {
    const std::size_t step = hn::Lanes(tag) * sizeof(T);
    const Target* const end = group.targets + group.target_count;
    for (const Target* target = group.targets; target != end; ++target) {
      std::byte* to = target->data + at * sizeof(T);
      store_bytes(tag, a, to);
      store_bytes(tag, b, to + step);
      store_bytes(tag, c, to + 2 * step);
      store_bytes(tag, d, to + 3 * step);
    }
  }
};

#if HWY_TARGET != HWY_SCALAR
/// The same for BF16: even and odd elements apart, without a shuffle, as a BF16 is the upper half
/// of an F32. Its sums wait in that order too.
template <>
struct Quad<BFloat16> : Quad<float> {
  static HWY_INLINE void load(const std::byte* from, V& a, V& b, V& c, V& d) {
    load_pair(from, a, b);
    load_pair(from + hn::Lanes(D()) * sizeof(float), c, d);
  }
  static HWY_INLINE void store(V a, V b, V c, V d, std::size_t at, const Group& group) {
    const std::size_t step = hn::Lanes(D()) * sizeof(float);
    const auto first = merged_bf16(a, b);
    const auto second = merged_bf16(c, d);
    const Target* const end = group.targets + group.target_count;
    for (const Target* target = group.targets; target != end; ++target) {
      std::byte* to = target->data + at * sizeof(BFloat16);
      store_bytes(TagU32(), first, to);
      store_bytes(TagU32(), second, to + step);
    }
  }

 private:
  static HWY_INLINE void load_pair(const std::byte* from, V& even, V& odd) {
    const auto both = load_bytes(TagU32(), from);
    even = hn::BitCast(D(), hn::ShiftLeft<16>(both));
    odd = hn::BitCast(D(), hn::And(both, hn::Set(TagU32(), 0xffff0000U)));
  }
};
#endif

/// a … d = a … d (op) what lies at `from`.
template <typename T, ReduceOp op, class V = VectorOf<Tag<T>>>
HWY_INLINE void combine_quad(const std::byte* from, V& a, V& b, V& c, V& d) {
  constexpr Tag<T> tag;
  V e, f, g, h;
  Quad<T>::load(from, e, f, g, h);
  a = combine<op>(tag, a, e);
  b = combine<op>(tag, b, f);
  c = combine<op>(tag, c, g);
  d = combine<op>(tag, d, h);
}

/// The only target += the vectors' products with the scale.
template <typename T, class V = VectorOf<Tag<T>>>
HWY_INLINE void add_quad(V a, V b, V c, V d, std::size_t at, const Group& group, Adding<T> adding) {
  constexpr Tag<T> tag;
  std::byte* const to = group.targets->data + at * sizeof(T);
  V e, f, g, h;
  Quad<T>::load(to, e, f, g, h);
  Quad<T>::store_sums(added(tag, a, e, adding), added(tag, b, f, adding), added(tag, c, g, adding),
                      added(tag, d, h, adding), to);
}

template <typename T, class V = VectorOf<Tag<T>>>
HWY_INLINE void finish_quad(V a,
                            V b,
                            V c,
                            V d,
                            std::size_t at,
                            const Group& group,
                            Divisor<Accumulator<T>> by,
                            Adding<Accumulator<T>> adding) {
  if constexpr (kFloats<Tag<T>>) {
    if (HWY_UNLIKELY(group.divided)) {
      constexpr Tag<T> tag;
      a = divided(tag, a, by);
      b = divided(tag, b, by);
      c = divided(tag, c, by);
      d = divided(tag, d, by);
    }
    if constexpr (!kIsHalf<T>) {
      if (HWY_UNLIKELY(adding.on)) return add_quad<T>(a, b, c, d, at, group, adding);
    }
  }
  Quad<T>::store(a, b, c, d, at, group);
}

/// All elements of a group, a multiple of four vectors. Each is loaded before it is stored, so a
/// target may be a term.
template <typename T, ReduceOp op, bool fetching>
HWY_NOINLINE void fold_quads(const Group& all) {
  const Group group = all;  // what is stored cannot change it: it stays in registers
  using Q = Quad<T>;
  VectorOf<Tag<T>> a, b, c, d;
  const std::size_t step = kGroupVectors * hn::Lanes(Tag<T>());
  const std::size_t count = group.end - group.begin;
  const auto by = divisor<Accumulator<T>>(group.world);
  const auto adding = adding_of<Accumulator<T>>(group.adds);
  const Term* const first = group.terms;
  const Term* const end = first + group.term_count;
  for (std::size_t done = 0; done < count; done += step) {
    const std::size_t at = group.begin + done;
    const Term* term = first;
    if constexpr (fetching) {
      for (; term != end; ++term) fetch_ahead(term->data + at * sizeof(T), step * sizeof(T));
      term = first;
    }
    if (HWY_UNLIKELY(group.from_sums)) {
      Q::load_sums(group.sums + done * sizeof(Accumulator<T>), a, b, c, d);
    } else {
      Q::load(term++->data + at * sizeof(T), a, b, c, d);
    }
    for (; term != end; ++term) combine_quad<T, op>(term->data + at * sizeof(T), a, b, c, d);
    if (HWY_UNLIKELY(group.to_sums)) {
      Q::store_sums(a, b, c, d, group.sums + done * sizeof(Accumulator<T>));
    } else {
      finish_quad<T>(a, b, c, d, at, group, by, adding);
    }
  }
}

/// A loop for one type and operation, elements of one of its steps, bytes of an element and a sum.
struct GroupLoop {
  void (*quads)(const Group& group);
  void (*fetching_quads)(const Group& group);
  std::size_t step;
  std::size_t size;
  std::size_t sum_size;
};

/// What is left after the last whole step, through memory of our own.
inline void fold_rest(const GroupLoop& loop, const Group& group) {
  alignas(kVectorBytes) std::byte operands[kGroupTerms][kGroupBytes];
  alignas(kVectorBytes) std::byte result[kGroupBytes];
  const std::size_t bytes = (group.end - group.begin) * loop.size;
  Term terms[kGroupTerms] = {};  // braces: a constructor would be compiled for one target only
  const Target target{result, Form::kT};
  for (std::size_t k = 0; k < group.term_count; ++k) {
    std::memcpy(operands[k], group.terms[k].data + group.begin * loop.size, bytes);
    std::memset(operands[k] + bytes, 0, kGroupBytes - bytes);
    terms[k].data = operands[k];
  }
  if (group.adds != nullptr && !group.to_sums) {
    std::memcpy(result, group.targets->data + group.begin * loop.size, bytes);
    std::memset(result + bytes, 0, kGroupBytes - bytes);
  }
  loop.quads({terms, group.term_count, &target, 1, group.sums, group.from_sums, group.to_sums,
              group.divided, group.adds, group.world, 0, loop.step});
  if (group.to_sums) return;
  for (std::size_t k = 0; k < group.target_count; ++k) {
    std::memcpy(group.targets[k].data + group.begin * loop.size, result, bytes);
  }
}

inline void fold_group(const GroupLoop& loop, const Group& group) {
  const std::size_t left = (group.end - group.begin) % loop.step;
  Group part = group;
  part.end -= left;
  if (part.begin != part.end) loop.quads(part);
  if (left == 0) return;
  if (part.sums != nullptr) part.sums += (part.end - part.begin) * loop.sum_size;
  part.begin = part.end;
  part.end = group.end;
  fold_rest(loop, part);
}

/// Two terms: too few streams for a core to have all that it could fetch at once on its way.
inline void fold_two(const GroupLoop& loop, Group group) {
  const std::size_t fetched = count_to_fetch(group.end, loop.size) / loop.step * loop.step;
  Group first = group;
  first.end = fetched;
  if (fetched != 0) loop.fetching_quads(first);
  group.begin = fetched;
  fold_group(loop, group);
}

/// More terms than one group has: block by block, so that sums stay in the first-level cache.
inline void fold_more(const GroupLoop& loop, const Fold& fold, bool divided) {
  alignas(kVectorBytes) std::byte sums[kBlockBytes];
  const std::size_t block = kBlockBytes / loop.sum_size;
  Group group{fold.terms, 0,       fold.targets, fold.target_count, sums, false,
              true,       divided, fold.adds,    fold.world,        0,    0};
  for (; group.begin < fold.count; group.begin = group.end) {
    const std::size_t left = fold.count - group.begin;
    group.end = group.begin + (left < block ? left : block);
    for (std::size_t first = 0; first < fold.term_count; first += kGroupTerms) {
      const std::size_t terms_left = fold.term_count - first;
      group.terms = fold.terms + first;
      group.term_count = terms_left < kGroupTerms ? terms_left : kGroupTerms;
      group.from_sums = first != 0;
      group.to_sums = terms_left > kGroupTerms;
      fold_group(loop, group);
    }
  }
}

template <typename T, ReduceOp op>
GroupLoop group_loop() {
  return {fold_quads<T, op, false>, fold_quads<T, op, true>, kGroupVectors * hn::Lanes(Tag<T>()),
          sizeof(T), sizeof(Accumulator<T>)};
}

template <typename T>
GroupLoop group_loop(ReduceOp op) {
  if (op == ReduceOp::kMin) return group_loop<T, ReduceOp::kMin>();
  if (op == ReduceOp::kMax) return group_loop<T, ReduceOp::kMax>();
  return group_loop<T, ReduceOp::kSum>();
}

template <typename T>
void fold_groups(const Fold& fold) {
  // Only a finished sum is divided.
  const bool divided = fold.op == ReduceOp::kMean && fold.targets[0].form == Form::kT;
  const GroupLoop loop = group_loop<T>(fold.op);
  if (fold.term_count > kGroupTerms) return fold_more(loop, fold, divided);
  const Group group{fold.terms, fold.term_count, fold.targets, fold.target_count, nullptr,
                    false,      false,           divided,      fold.adds,         fold.world,
                    0,          fold.count};
  fold.term_count == 2 ? fold_two(loop, group) : fold_group(loop, group);
}

}  // namespace paceline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
