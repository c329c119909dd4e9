// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/gradient_place.h"

#include <cstddef>
#include <cstring>

#include <ATen/core/grad_mode.h>

namespace paceline {
namespace {

// Owners of the memory that are no reason to copy: `.grad` itself, autograd's own hand on it, and
// the tensor whose view that is, as of a linear layer's weight; unless somebody else holds these.
std::size_t expected_owners(const at::Tensor& gradient, const at::Tensor& passing) {
  const bool passed_on = passing.defined() && passing.has_storage() && passing.use_count() == 1 &&
                         passing.is_alias_of(gradient);
  if (!passed_on) return 1;
  return passing.is_view() && passing._base().use_count() == 1 ? 3 : 2;
}

}  // namespace

bool lies_like(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (!gradient.has_storage() || gradient.is_neg() || gradient._is_zerotensor()) return false;
  if (!parameter.is_non_overlapping_and_dense()) return gradient.is_contiguous();
  const auto sizes = parameter.sizes();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && gradient.strides()[i] != parameter.strides()[i]) return false;
  }
  return true;
}

CopyReason obstacle_of(const at::Tensor& gradient,
                       const at::Tensor& parameter,
                       const at::Tensor& passing,
                       const GradientArena& arena) {
  if (!lies_like(gradient, parameter)) return CopyReason::kStrides;
  if (gradient.requires_grad() || gradient.use_count() > 1 ||
      gradient.storage().use_count() > expected_owners(gradient, passing)) {
    return CopyReason::kAliased;
  }
  return arena.holds(gradient) ? CopyReason::kNone : CopyReason::kOutside;
}

void copy_bits(const at::Tensor& home, const at::Tensor& gradient, const at::Tensor& parameter) {
  if (lies_like(gradient, parameter)) {  // what copy_ does on its way there costs more than 4 KiB
    if (home.nbytes() == 0) return;
    std::memcpy(home.mutable_data_ptr(), gradient.const_data_ptr(), home.nbytes());
    return;
  }
  const at::NoGradGuard no_grad;
  home.copy_(gradient);
}

}  // namespace paceline
