// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The rates of the parameter groups, and which parameter belongs to which.

#include <span>
#include <string>
#include <vector>

#include "paceline/parallel/tensor_io.h"
#include "paceline/parallel/update_rule.h"

namespace paceline {

/// "lr is -1, not at least 0"; empty if these can be used.
[[nodiscard]] std::string fault_of_rates(const GroupRates& rates);

/// Threads  One caller at a time.
class SharedGroups {
 public:
  SharedGroups(GroupRates defaults,
               const std::vector<ParameterGroup>& groups,
               std::span<const NamedTensor> parameters);

  /// What is wrong with them; empty if nothing is.
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }
  [[nodiscard]] Fingerprint traits() const;
  [[nodiscard]] std::size_t size() const noexcept { return rates_.size(); }
  [[nodiscard]] std::size_t of(std::size_t parameter) const { return group_of_[parameter]; }

  /// Errors  UsageError if there is no such group, or a rate is below 0 or not finite.
  [[nodiscard]] const GroupRates& at(std::size_t group) const;
  void set(std::size_t group, GroupRates rates);

 private:
  void assign(const std::vector<std::string>& names,
              std::size_t group,
              std::span<const NamedTensor> parameters);

  std::vector<GroupRates> rates_;
  std::vector<std::size_t> group_of_;
  std::string fault_;
};

}  // namespace paceline
