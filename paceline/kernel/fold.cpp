// SPDX-License-Identifier: Apache-2.0
// Picks the loop for each fold, once for each SIMD target, and the target at run time.
#include "paceline/kernel/fold.h"

#include <cstring>
#include <string>
#include <type_traits>

#include "paceline/base/error.h"
#include "paceline/kernel/element.h"
#include "paceline/kernel/targets.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "paceline/kernel/fold.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "paceline/kernel/groups_inl.h"
#include "paceline/kernel/loops_inl.h"
// clang-format on

// Nothing from the standard library is instantiated in here: the linker may keep only one target's
// copy of such a function, and an older CPU would then run instructions that it does not have.
HWY_BEFORE_NAMESPACE();
namespace paceline::kernel::HWY_NAMESPACE {

/// Bytes of one element of T in `form`.
template <typename T>
constexpr std::size_t size_in(Form form) {
  return form == Form::kT ? kSize<T, Form::kT> : kSize<T, Form::kSum>;
}

template <typename T, ReduceOp op, Form fa, Form fb>
void pair_into(const Pair& pair, Form out) {
  // Only a finished sum is divided.
  constexpr ReduceOp kUnfinished = op == ReduceOp::kMean ? ReduceOp::kSum : op;
  constexpr Form kFinished = kIsHalf<T> ? Form::kT : Form::kSum;  // or both are T: one loop less
  if (out == Form::kSum) {
    run<Combine<T, kUnfinished, fa, fb, Form::kSum>>(pair);
  } else {
    run<Combine<T, op, fa, fb, kFinished>>(pair);
  }
}

template <typename T, ReduceOp op>
void pair_from(const Pair& pair, PairForms forms) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (forms.a == Form::kT && forms.b == Form::kT && forms.out == Form::kT) {
      return run<CombineBFloat16<op>>(pair);
    }
  }
#endif
  if constexpr (!kIsHalf<T>) {
    pair_into<T, op, Form::kSum, Form::kSum>(pair, forms.out);  // both forms are T
  } else if (forms.a == Form::kT && forms.b == Form::kT) {
    pair_into<T, op, Form::kT, Form::kT>(pair, forms.out);
  } else if (forms.a ==
             Form::kT) {  // each operation commutes, and any NaN becomes the canonical one
    pair_into<T, op, Form::kSum, Form::kT>({pair.b, pair.a, pair.out, pair.count, pair.world},
                                           forms.out);
  } else if (forms.b == Form::kT) {
    pair_into<T, op, Form::kSum, Form::kT>(pair, forms.out);
  } else {
    pair_into<T, op, Form::kSum, Form::kSum>(pair, forms.out);
  }
}

template <typename T>
void pair_op(ReduceOp op, const Pair& pair, PairForms forms) {
  switch (op) {
    case ReduceOp::kMin: return pair_from<T, ReduceOp::kMin>(pair, forms);
    case ReduceOp::kMax: return pair_from<T, ReduceOp::kMax>(pair, forms);
    case ReduceOp::kMean:
      if constexpr (kFloats<Tag<T>>) return pair_from<T, ReduceOp::kMean>(pair, forms);
      return;  // fold() has refused it
    case ReduceOp::kSum: return pair_from<T, ReduceOp::kSum>(pair, forms);
  }
}

template <typename T>
void fold_one(ReduceOp op, const Pair& pair, PairForms forms) {
  if constexpr (kIsHalf<T>) {
    if (forms.a == Form::kT && forms.out == Form::kSum) {
      return run<Convert<T, ReduceOp::kSum, Form::kT, Form::kSum>>(pair);
    }
  }
  if constexpr (kFloats<Tag<T>>) {
    if (forms.a == Form::kSum && forms.out == Form::kT) {
      if (op == ReduceOp::kMean) {
        return run<Convert<T, ReduceOp::kMean, Form::kSum, Form::kT>>(pair);
      }
      return run<Convert<T, ReduceOp::kSum, Form::kSum, Form::kT>>(pair);
    }
  }
  if (pair.a != pair.out) std::memcpy(pair.out, pair.a, pair.count * size_in<T>(forms.a));
}

/// Elements [begin, begin + count) of one term, or pair by pair of more, into the first target. It
/// is written by the last pair only, so it may be any term's memory.
template <typename T>
void fold_pairs(const Fold& fold, std::size_t begin, std::size_t count) {
  const Target& target = fold.targets[0];
  std::byte* result = target.data + begin * size_in<T>(target.form);
  Form form = fold.terms[0].form;
  const std::byte* a = fold.terms[0].data + begin * size_in<T>(form);
  if (fold.term_count == 1) {
    return fold_one<T>(fold.op, {a, a, result, count, fold.world}, {form, form, target.form});
  }
  alignas(kVectorBytes) std::byte sums[kBlockBytes];
  for (std::size_t k = 1; k < fold.term_count; ++k) {
    const bool last = k + 1 == fold.term_count;
    const Form fb = fold.terms[k].form;
    const std::byte* b = fold.terms[k].data + begin * size_in<T>(fb);
    pair_op<T>(fold.op, {a, b, last ? result : sums, count, fold.world},
               {form, fb, last ? target.form : Form::kSum});
    a = sums;
    form = Form::kSum;
  }
}

/// The same block by block; further targets are copies of the first.
template <typename T>
void fold_blocks(const Fold& fold) {
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Accumulator<T>);
  const Target* targets = fold.targets;
  const std::size_t size = size_in<T>(targets[0].form);
  for (std::size_t begin = 0; begin < fold.count; begin += kBlock) {
    const std::size_t left = fold.count - begin;
    const std::size_t count = left < kBlock ? left : kBlock;
    fold_pairs<T>(fold, begin, count);
    for (std::size_t k = 1; k < fold.target_count; ++k) {
      std::memcpy(targets[k].data + begin * size, targets[0].data + begin * size, count * size);
    }
  }
}

/// Whether groups of terms can be summed in registers. Both forms are T unless T has 16 bits.
template <typename T>
bool in_registers(const Fold& fold) {
  if (fold.term_count == 1) return false;
  if constexpr (kIsHalf<T>) {
    for (std::size_t k = 0; k < fold.term_count; ++k) {
      if (fold.terms[k].form != Form::kT) return false;
    }
    return fold.targets[0].form == Form::kT;
  }
  return true;
}

template <typename T>
void fold_as(const Fold& fold) {
  if (fold.adds != nullptr) return fold_groups<T>(fold);
  if (fold.term_count <= 2 && fold.target_count == 1) return fold_pairs<T>(fold, 0, fold.count);
  if (in_registers<T>(fold)) return fold_groups<T>(fold);
  fold_blocks<T>(fold);
}

void fold_on_target(Dtype dtype, const Fold& fold) {
  switch (dtype) {
    case Dtype::kF32: return fold_as<float>(fold);
    case Dtype::kF64: return fold_as<double>(fold);
    case Dtype::kF16: return fold_as<Float16>(fold);
    case Dtype::kBF16: return fold_as<BFloat16>(fold);
    case Dtype::kU8: return fold_as<std::uint8_t>(fold);
    case Dtype::kI32: return fold_as<std::int32_t>(fold);
    case Dtype::kI64: return fold_as<std::int64_t>(fold);
  }
}

const char* name_on_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace paceline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace paceline::kernel {

HWY_EXPORT(fold_on_target);
HWY_EXPORT(name_on_target);

namespace {
void check(Dtype dtype,
           ReduceOp op,
           int world,
           std::span<const Term> terms,
           std::span<const Target> targets) {
  if (size_of(dtype) == 0) throw UsageError("fold: unknown element type");
  if (static_cast<int>(op) > static_cast<int>(ReduceOp::kMax)) {
    throw UsageError("fold: unknown operation");
  }
  if (terms.empty()) throw UsageError("fold: there is nothing to fold, terms are empty");
  if (targets.empty()) throw UsageError("fold: nowhere to put the result, targets are empty");
  for (const Target& target : targets) {
    if (target.form != targets[0].form) {
      throw UsageError("fold: targets differ in form, fold into one form at a time");
    }
  }
  if (world < 1) throw UsageError("fold: world is " + std::to_string(world) + ", not positive");
  if (op == ReduceOp::kMean && !is_floating(dtype)) {
    throw UsageError("fold: mean of " + std::string(name_of(dtype)) +
                     " is undefined, use sum and divide");
  }
}

void check_adds(Dtype dtype, std::span<const Term> terms, std::span<const Target> targets) {
  if (dtype != Dtype::kF32 && dtype != Dtype::kF64) {
    throw UsageError("fold: cannot add to " + std::string(name_of(dtype)) +
                     ", only to f32 and f64");
  }
  if (terms.size() < 2 || targets.size() != 1 || targets[0].form != Form::kT) {
    throw UsageError("fold: adds two or more terms to one target in the element type");
  }
}
}  // namespace

void fold(Dtype dtype,
          ReduceOp op,
          int world,
          std::uint64_t count,
          std::span<const Term> terms,
          std::span<const Target> targets,
          const ScaledAdd* adds) {
  check(dtype, op, world, terms, targets);
  if (adds != nullptr) check_adds(dtype, terms, targets);
  if (count == 0) return;
  const Fold all{op,           world,          count,          terms.data(),
                 terms.size(), targets.data(), targets.size(), adds};
  HWY_DYNAMIC_DISPATCH(fold_on_target)(dtype, all);
}

const char* target_name() { return HWY_DYNAMIC_DISPATCH(name_on_target)(); }

std::vector<std::string> targets() {
  std::vector<std::string> names;
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

ForcedTarget::ForcedTarget(const std::string& name) {
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    if (name == hwy::TargetName(target)) {
      hwy::SetSupportedTargetsForTest(target);
      return;
    }
  }
  throw UsageError("this machine has no SIMD target " + name);
}

ForcedTarget::~ForcedTarget() { hwy::SetSupportedTargetsForTest(0); }

}  // namespace paceline::kernel
#endif  // HWY_ONCE
