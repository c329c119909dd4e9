// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Equal but for rounding.

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace paceline::tests {

/// What f64 all the way leaves; the default of close() is for f32.
constexpr double kDoubleTolerance = 1e-13;

/// Whether two results are the same sums, rounded in another order.
///
/// A CPU, a batch size or an address chooses the kernel, and with it the order of a dot product. The
/// tests' terms are around 1, some dozens to a sum: rounding moves a result by up to 1e-6 (1e-15 in
/// f64) however small the sum is, a lost sample or a wrong factor by 1e-3 and more.
inline ::testing::AssertionResult close(const ::torch::Tensor& actual,
                                        const ::torch::Tensor& expected,
                                        double tolerance = 1e-5) {
  const ::torch::NoGradGuard no_grad;
  if (actual.sizes() != expected.sizes()) {
    return ::testing::AssertionFailure() << actual.sizes() << " against " << expected.sizes();
  }
  if (::torch::allclose(actual, expected, tolerance, tolerance)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << "up to " << (actual - expected).abs().max().item<double>()
         << " apart, where the largest is " << expected.abs().max().item<double>();
}

}  // namespace paceline::tests
