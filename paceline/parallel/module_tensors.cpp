// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/module_tensors.h"

#include <algorithm>

#include <torch/nn/module.h>

namespace paceline {
namespace {

template <typename Items>
std::vector<NamedTensor> named(const Items& items) {
  std::vector<NamedTensor> result;
  for (const auto& item : items) result.push_back({item.key(), item.value()});
  return result;
}

/// A module's own parameters where it keeps them: named_parameters() copies and hashes each name,
/// which for a small parameter costs as much as its gradient.
struct Registered : ::torch::nn::Module {
  static const auto& of(const ::torch::nn::Module& module) {
    return module.*(&Registered::parameters_);
  }
};

/// In the order of named_parameters(). @return whether `visit` has not ended it by false.
template <typename Visit>
bool for_each_parameter(const ::torch::nn::Module& module, const Visit& visit) {
  for (const auto& item : Registered::of(module)) {
    if (item.value().defined() && !visit(item.value())) return false;
  }
  for (const auto& child : module.children()) {
    if (!for_each_parameter(*child, visit)) return false;
  }
  return true;
}

}  // namespace

std::string list_of(at::IntArrayRef numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return text + "]";
}

std::string kind_of(const at::Tensor& tensor) {
  return name_of(tensor.scalar_type()) + " " + list_of(tensor.sizes());
}

std::string fault_of_gradient(const NamedTensor& parameter) {
  const auto& [name, tensor] = parameter;
  const at::Tensor& gradient = tensor.grad();
  if (gradient.layout() != at::kStrided) {
    return "the gradient of " + name + " is sparse or in another special layout; only dense ones " +
           "can be averaged (of an embedding, with sparse(false))";
  }
  if (gradient.scalar_type() == tensor.scalar_type() && gradient.sizes() == tensor.sizes() &&
      gradient.device() == tensor.device()) {
    return {};
  }
  const auto text = [](const at::Tensor& of) { return kind_of(of) + " on " + of.device().str(); };
  return "the gradient of " + name + " is " + text(gradient) + ", and the parameter " +
         text(tensor) + "; they must be alike";
}

std::vector<NamedTensor> parameters_of(const ::torch::nn::Module& module) {
  return named(module.named_parameters());
}

std::vector<NamedTensor> buffers_of(const ::torch::nn::Module& module) {
  return named(module.named_buffers());
}

std::vector<NamedTensor> without_repeats(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> result;
  for (const auto& one : tensors) {
    const bool known = std::any_of(result.begin(), result.end(), [&](const NamedTensor& other) {
      return other.tensor.is_same(one.tensor);
    });
    if (!known) result.push_back(one);
  }
  return result;
}

std::vector<at::Tensor> tensors_only(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& one : tensors) result.push_back(one.tensor);
  return result;
}

RememberedTensors::RememberedTensors(const std::vector<NamedTensor>& tensors) {
  for (const auto& one : tensors) {
    remembered_.push_back({one, one.tensor.requires_grad(), one.tensor.scalar_type(),
                           one.tensor.device(), one.tensor.sizes().vec()});
  }
}

std::string RememberedTensors::change_of(const Remembered& was, const at::Tensor& is) {
  if (!was.named.tensor.is_same(is)) return "was replaced";
  if (was.type != is.scalar_type() || is.sizes() != was.sizes) return "has another type or shape";
  if (was.device != is.device()) return "moved to " + is.device().str();
  return {};
}

std::string RememberedTensors::first_change(const std::vector<NamedTensor>& now) const {
  const auto find = [](const auto& list, const std::string& name, const auto& name_of) {
    return std::find_if(list.begin(), list.end(),
                        [&](const auto& one) { return name_of(one) == name; });
  };
  for (const auto& was : remembered_) {
    const auto is = find(now, was.named.name, [](const NamedTensor& one) { return one.name; });
    const std::string change = is == now.end() ? "was removed" : change_of(was, is->tensor);
    if (!change.empty()) return was.named.name + " " + change;
  }
  for (const auto& is : now) {
    const auto was =
        find(remembered_, is.name, [](const Remembered& one) { return one.named.name; });
    if (was == remembered_.end()) return is.name + " was added";
  }
  return "their order changed";
}

std::string RememberedTensors::change(const std::vector<NamedTensor>& now) const {
  const bool same = std::equal(remembered_.begin(), remembered_.end(), now.begin(), now.end(),
                               [](const Remembered& was, const NamedTensor& is) {
                                 return change_of(was, is.tensor).empty();
                               });
  return same ? std::string() : first_change(now);
}

bool RememberedTensors::are_parameters_of(const ::torch::nn::Module& module) const {
  auto next = remembered_.begin();
  const bool all = for_each_parameter(module, [&](const at::Tensor& is) {
    if (next == remembered_.end() || !change_of(*next, is).empty()) return false;
    ++next;
    return true;
  });
  return all && next == remembered_.end();
}

std::string RememberedTensors::change_of_requires_grad() const {
  for (const auto& was : remembered_) {
    if (was.named.tensor.requires_grad() == was.requires_grad) continue;
    return was.named.name + (was.requires_grad ? " no longer requires grad" : " now requires grad");
  }
  return {};
}

}  // namespace paceline
