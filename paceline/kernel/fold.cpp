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
#include "paceline/kernel/loops_inl.h"
// clang-format on

// Nothing from the standard library is instantiated in here: the linker may keep only one target's
// copy of such a function, and an older CPU would then run instructions that it does not have.
HWY_BEFORE_NAMESPACE();
namespace paceline::kernel::HWY_NAMESPACE {

// Partial sums of three and more terms wait here, in the first-level cache.
inline constexpr std::size_t kBlockBytes = 4096;

template <typename T, ReduceOp op, Form fa, Form fb>
void pair_into(const Pair& pair, Form out) {
  // Only a finished sum is divided.
  constexpr ReduceOp kUnfinished = op == ReduceOp::kMean ? ReduceOp::kSum : op;
  if (out == Form::kSum) {
    run<Combine<T, kUnfinished, fa, fb, Form::kSum>>(pair);
  } else {
    run<Combine<T, op, fa, fb, Form::kT>>(pair);
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
  if constexpr (kIsHalf<T>) {
    if (forms.a == Form::kT && forms.b == Form::kT) {
      pair_into<T, op, Form::kT, Form::kT>(pair, forms.out);
    } else if (forms.a == Form::kT) {
      pair_into<T, op, Form::kT, Form::kSum>(pair, forms.out);
    } else if (forms.b == Form::kT) {
      pair_into<T, op, Form::kSum, Form::kT>(pair, forms.out);
    } else {
      pair_into<T, op, Form::kSum, Form::kSum>(pair, forms.out);
    }
  } else {
    pair_into<T, op, Form::kSum, Form::kSum>(pair, forms.out);  // both forms are T
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
  const std::size_t size = forms.a == Form::kT ? kSize<T, Form::kT> : kSize<T, Form::kSum>;
  if (pair.a != pair.out) std::memcpy(pair.out, pair.a, pair.count * size);
}

/// One block of three or more terms. The target is written by the last pair only, so it may be any
/// term's memory.
template <typename T>
void fold_block(ReduceOp op,
                int world,
                const Term* terms,
                std::size_t term_count,
                Target target,
                std::size_t begin,
                std::size_t count) {
  alignas(kVectorBytes) std::byte sums[kBlockBytes];
  const auto offset = [begin](Form form) {
    return begin * (form == Form::kT ? kSize<T, Form::kT> : kSize<T, Form::kSum>);
  };
  const std::byte* a = terms[0].data + offset(terms[0].form);
  Form form = terms[0].form;
  for (std::size_t k = 1; k < term_count; ++k) {
    const bool last = k + 1 == term_count;
    const Form out = last ? target.form : Form::kSum;
    std::byte* to = last ? target.data + offset(target.form) : sums;
    const std::byte* b = terms[k].data + offset(terms[k].form);
    pair_op<T>(op, {a, b, to, count, world}, {form, terms[k].form, out});
    a = sums;
    form = Form::kSum;
  }
}

template <typename T>
void fold_as(ReduceOp op,
             int world,
             std::size_t count,
             const Term* terms,
             std::size_t term_count,
             Target target) {
  if (term_count == 1) {
    return fold_one<T>(op, {terms[0].data, terms[0].data, target.data, count, world},
                       {terms[0].form, terms[0].form, target.form});
  }
  if (term_count == 2) {
    return pair_op<T>(op, {terms[0].data, terms[1].data, target.data, count, world},
                      {terms[0].form, terms[1].form, target.form});
  }
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Accumulator<T>);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t left = count - begin;
    fold_block<T>(op, world, terms, term_count, target, begin, left < kBlock ? left : kBlock);
  }
}

void fold_on_target(Dtype dtype,
                    ReduceOp op,
                    int world,
                    std::size_t count,
                    const Term* terms,
                    std::size_t term_count,
                    Target target) {
  switch (dtype) {
    case Dtype::kF32: return fold_as<float>(op, world, count, terms, term_count, target);
    case Dtype::kF64: return fold_as<double>(op, world, count, terms, term_count, target);
    case Dtype::kF16: return fold_as<Float16>(op, world, count, terms, term_count, target);
    case Dtype::kBF16: return fold_as<BFloat16>(op, world, count, terms, term_count, target);
    case Dtype::kU8: return fold_as<std::uint8_t>(op, world, count, terms, term_count, target);
    case Dtype::kI32: return fold_as<std::int32_t>(op, world, count, terms, term_count, target);
    case Dtype::kI64: return fold_as<std::int64_t>(op, world, count, terms, term_count, target);
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
void check(Dtype dtype, ReduceOp op, int world, std::size_t term_count) {
  if (size_of(dtype) == 0) throw UsageError("fold: unknown element type");
  if (static_cast<int>(op) > static_cast<int>(ReduceOp::kMax)) {
    throw UsageError("fold: unknown operation");
  }
  if (term_count == 0) throw UsageError("fold: there is nothing to fold, terms are empty");
  if (world < 1) throw UsageError("fold: world is " + std::to_string(world) + ", not positive");
  if (op == ReduceOp::kMean && !is_floating(dtype)) {
    throw UsageError("fold: mean of " + std::string(name_of(dtype)) +
                     " is undefined, use sum and divide");
  }
}
}  // namespace

void fold(Dtype dtype,
          ReduceOp op,
          int world,
          std::uint64_t count,
          std::span<const Term> terms,
          Target target) {
  check(dtype, op, world, terms.size());
  if (count == 0) return;
  HWY_DYNAMIC_DISPATCH(fold_on_target)
  (dtype, op, world, count, terms.data(), terms.size(), target);
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
