// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/module_state.h"

#include <algorithm>
#include <utility>

#include <torch/nn/module.h>

#include "paceline/base/error.h"

namespace paceline {
namespace {

std::string list_of(at::IntArrayRef numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return text + "]";
}

std::string describe(const at::Tensor& tensor) {
  std::string text = name_of(tensor.scalar_type()) + " " + list_of(tensor.sizes());
  if (tensor.layout() != at::kStrided) return text + " sparse";
  return text + " strides " + list_of(tensor.strides()) +
         (tensor.requires_grad() ? " trainable" : " frozen");
}

// Why comm cannot move this tensor; empty if it can.
std::string problem_of(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.device().is_cpu())
    return name + " is on " + tensor.device().str() + ", not on the CPU";
  if (tensor.layout() != at::kStrided) return name + " is sparse";
  if (tensor.requires_grad() && !tensor.is_leaf()) return name + " is no leaf of autograd's graph";
  const auto dtype = dtype_of(tensor.scalar_type());
  if (tensor.requires_grad() && !(dtype && is_floating(*dtype))) {
    return name + " has type " + name_of(tensor.scalar_type()) +
           "; gradients of f32, f64, f16 and bf16 can be averaged";
  }
  return {};
}

bool holds(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& other) { return other.is_same(tensor); });
}

std::vector<at::Tensor> without_repeats(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) {
    if (!holds(result, tensor)) result.push_back(tensor);
  }
  return result;
}

}  // namespace

ModuleState::ModuleState(std::shared_ptr<::torch::nn::Module> module,
                         Communicator& comm,
                         const DdpOptions& options)
    : module_(std::move(module)),
      comm_(comm),
      options_(options),
      name_("ddp " + std::to_string(comm.next_user_number())) {
  if (!module_) return;  // agree() says so, on every rank
  for (const auto& item : module_->named_parameters()) {
    const at::Tensor& tensor = item.value();
    remembered_.push_back(
        {item.key(), tensor, tensor.requires_grad(), tensor.scalar_type(), tensor.sizes().vec()});
  }
}

std::string ModuleState::problem() const {
  if (!module_) return "the module is empty";
  if (options_.timeout <= std::chrono::milliseconds(0)) return "the timeout is not positive";
  if (options_.bucket_cap_bytes == 0) return "bucket_cap_bytes is 0";
  if (options_.first_bucket_cap_bytes == 0) return "first_bucket_cap_bytes is 0";
  if (std::none_of(remembered_.begin(), remembered_.end(),
                   [](const Remembered& parameter) { return parameter.requires_grad; })) {
    return "the module " + module_->name() + " has no parameter that requires grad";
  }
  for (const auto& parameter : remembered_) {
    std::string text = problem_of("parameter " + parameter.name, parameter.tensor);
    if (!text.empty()) return text;
  }
  return buffer_problem();
}

std::string ModuleState::buffer_problem() const {
  for (const auto& item : module_->named_buffers()) {
    std::string text = problem_of("buffer " + item.key(), item.value());
    if (!text.empty()) return text;
  }
  return {};
}

Fingerprint ModuleState::fingerprint() const {
  Fingerprint result{{"the wrapper's name", name_}, {"the module", module_ ? "given" : "empty"}};
  for (const auto& parameter : remembered_) {
    result.push_back({"parameter " + parameter.name, describe(parameter.tensor)});
  }
  if (module_) {
    for (const auto& item : module_->named_buffers()) {
      result.push_back({"buffer " + item.key(), describe(item.value())});
    }
  }
  result.push_back({"option bucket_cap_bytes", std::to_string(options_.bucket_cap_bytes)});
  result.push_back(
      {"option first_bucket_cap_bytes", std::to_string(options_.first_bucket_cap_bytes)});
  result.push_back({"option broadcast_buffers", options_.broadcast_buffers ? "on" : "off"});
  const std::string bad = problem();
  if (!bad.empty()) result.push_back({"an error", bad});
  return result;
}

void ModuleState::agree() {
  // What only one rank can see becomes an error of all: it is part of what is compared.
  const bool usable = options_.timeout > std::chrono::milliseconds(0);
  require_equal_on_all_ranks(fingerprint(), comm_, usable ? options_.timeout : kDefaultTimeout);
  const std::string bad = problem();
  if (!bad.empty()) throw UsageError("DistributedDataParallel: " + bad);
  std::vector<at::Tensor> all = parameters();
  for (const auto& buffer : module_->buffers()) all.push_back(buffer);
  broadcast_from_rank_0(without_repeats(all), comm_,
                        {.label = name_ + " parameters", .timeout = options_.timeout});
}

std::vector<at::Tensor> ModuleState::parameters() const {
  return without_repeats(module_->parameters());
}

std::vector<NamedTensor> ModuleState::trainable() const {
  std::vector<NamedTensor> result;
  std::vector<at::Tensor> seen;
  for (const auto& parameter : remembered_) {
    if (!parameter.requires_grad || holds(seen, parameter.tensor)) continue;
    seen.push_back(parameter.tensor);
    result.push_back({parameter.name, parameter.tensor});
  }
  return result;
}

std::string ModuleState::change_of(const Remembered& was, const at::Tensor& is) {
  if (!was.tensor.is_same(is)) return "was replaced";
  if (was.requires_grad != is.requires_grad()) {
    return was.requires_grad ? "no longer requires grad" : "now requires grad";
  }
  if (was.type != is.scalar_type() || is.sizes() != was.sizes) {
    return "has another type or shape";
  }
  return {};
}

std::string ModuleState::first_change() const {
  const auto now = module_->named_parameters();
  for (const auto& was : remembered_) {
    const auto* is = now.find(was.name);
    const std::string change = is == nullptr ? "was removed" : change_of(was, *is);
    if (!change.empty()) return was.name + " " + change;
  }
  for (const auto& item : now) {
    const bool known = std::any_of(remembered_.begin(), remembered_.end(),
                                   [&](const Remembered& was) { return was.name == item.key(); });
    if (!known) return item.key() + " was added";
  }
  return "their order changed";
}

void ModuleState::require_unchanged() const {
  const auto now = module_->parameters();
  const bool same = std::equal(
      remembered_.begin(), remembered_.end(), now.begin(), now.end(),
      [](const Remembered& was, const at::Tensor& is) { return change_of(was, is).empty(); });
  if (same) return;
  refuse("the parameters changed after they were wrapped: " + first_change() +
         "; wrap the module again");
}

void ModuleState::refuse(const std::string& why) const {
  // Ranks that have the same problem meet here and go on; one that has it alone meets another call
  // of its peers, and all see both.
  const std::string text = "DistributedDataParallel: " + why;
  comm_.barrier({.label = name_ + " forward: " + why, .timeout = options_.timeout});
  throw UsageError(text);
}

void ModuleState::synchronize_buffers() const {
  if (!options_.broadcast_buffers || !module_->is_training() || comm_.world_size() == 1) return;
  const std::string bad = buffer_problem();
  if (!bad.empty()) refuse(bad);
  broadcast_from_rank_0(without_repeats(module_->buffers()), comm_,
                        {.label = name_ + " buffers", .timeout = options_.timeout});
}

}  // namespace paceline
