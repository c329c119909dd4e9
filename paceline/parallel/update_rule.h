// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The arithmetic of the shared optimizers, a cell at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/base/types.h"
#include "paceline/parallel/fingerprint.h"
#include "paceline/parallel/shared_optimizer.h"

namespace paceline {

/// What a group of parameters has for itself.
struct GroupRates {
  double lr = 0;
  double weight_decay = 0;
};

/// The same elements everywhere, flat.
struct Cell {
  at::Tensor parameter;
  at::Tensor scratch;  // where a mean arrives; it may be overwritten
  std::vector<at::Tensor> state;
  std::size_t group = 0;
  std::size_t parameter_index = 0;  // it is these elements of that trainable parameter
  Range elements;
};

/// Threads  One caller at a time.
class UpdateRule {
 public:
  UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;
  virtual ~UpdateRule() = default;

  /// What it remembers of each element from step to step; zero at first.
  [[nodiscard]] virtual std::vector<std::string> state_names() const = 0;
  /// What must be equal on all ranks, but for the rates.
  [[nodiscard]] virtual Fingerprint traits() const = 0;
  /// What is wrong with these; empty if nothing is.
  [[nodiscard]] virtual std::string fault() const = 0;
  /// Makes step number `step`, which is 1 for the first. Reads `gradient`; that may be the scratch.
  virtual void update(const Cell& cell,
                      const at::Tensor& gradient,
                      const GroupRates& rates,
                      std::int64_t step) const = 0;
  /// If update() does no more to elements of this type than a scaled sum of parameter and gradient
  /// does, to the bit (but for the bits of a NaN): that sum.
  [[nodiscard]] virtual std::optional<ScaledAdd> plain_update(const GroupRates& /*rates*/,
                                                              Dtype /*dtype*/) const {
    return std::nullopt;
  }
};

[[nodiscard]] std::unique_ptr<UpdateRule> make_rule(const SharedSgdOptions& options);
[[nodiscard]] std::unique_ptr<UpdateRule> make_rule(const SharedAdamOptions& options);

/// Whether at::add(a, b, scale) fuses product and sum on this CPU, by trial. None if it does so
/// with some elements and not with others, or for types other than F32 and F64.
[[nodiscard]] std::optional<bool> aten_fuses(at::ScalarType type);

/// "0.1", such that equal text means equal bits.
[[nodiscard]] std::string exact_text(double value);

/// "lr is -1, not at least 0" or "lr is nan, not finite"; empty if neither.
[[nodiscard]] std::string fault_of_number(const std::string& name, double value);

}  // namespace paceline
