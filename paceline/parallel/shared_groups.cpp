// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/shared_groups.h"

#include <algorithm>

#include "paceline/base/error.h"

namespace paceline {

std::string fault_of_rates(const GroupRates& rates) {
  const std::string fault = fault_of_number("lr", rates.lr);
  return fault.empty() ? fault_of_number("weight_decay", rates.weight_decay) : fault;
}

SharedGroups::SharedGroups(GroupRates defaults,
                           const std::vector<ParameterGroup>& groups,
                           std::span<const NamedTensor> parameters)
    : rates_{defaults}, group_of_(parameters.size(), 0) {
  for (const ParameterGroup& group : groups) {
    rates_.push_back(
        {group.lr.value_or(defaults.lr), group.weight_decay.value_or(defaults.weight_decay)});
    assign(group.parameters, rates_.size() - 1, parameters);
  }
  for (const GroupRates& rates : rates_) {
    if (fault_.empty()) fault_ = fault_of_rates(rates);
  }
}

void SharedGroups::assign(const std::vector<std::string>& names,
                          std::size_t group,
                          std::span<const NamedTensor> parameters) {
  const std::string who = "group " + std::to_string(group);
  for (const std::string& name : names) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const NamedTensor& one) { return one.name == name; });
    if (found == parameters.end()) {
      fault_ = who + " names " + name + ", which is no parameter that requires grad";
      return;
    }
    std::size_t& its = group_of_[static_cast<std::size_t>(found - parameters.begin())];
    if (its != 0) fault_ = who + " names " + name + ", which is named before";
    its = group;
  }
}

Fingerprint SharedGroups::traits() const {
  Fingerprint traits;
  for (std::size_t group = 0; group < rates_.size(); ++group) {
    const std::string suffix = " of group " + std::to_string(group);
    traits.push_back({"lr" + suffix, exact_text(rates_[group].lr)});
    traits.push_back({"weight_decay" + suffix, exact_text(rates_[group].weight_decay)});
  }
  for (const std::size_t group : group_of_) traits.push_back({"a group", std::to_string(group)});
  return traits;
}

const GroupRates& SharedGroups::at(std::size_t group) const {
  if (group < rates_.size()) return rates_[group];
  throw UsageError("there is no group " + std::to_string(group) + "; they are 0 to " +
                   std::to_string(rates_.size() - 1));
}

void SharedGroups::set(std::size_t group, GroupRates rates) {
  static_cast<void>(at(group));
  const std::string fault = fault_of_rates(rates);
  if (!fault.empty()) throw UsageError(fault);
  rates_[group] = rates;
}

}  // namespace paceline
