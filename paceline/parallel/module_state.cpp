// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/module_state.h"

#include <utility>

#include <torch/nn/module.h>

#include "paceline/base/error.h"
#include "paceline/parallel/gradient_arena.h"

namespace paceline {
namespace {

std::string describe(const at::Tensor& tensor) {
  std::string text = kind_of(tensor);
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

}  // namespace

ModuleState::ModuleState(std::shared_ptr<::torch::nn::Module> module,
                         Communicator& comm,
                         const DdpOptions& options,
                         WrapperName who)
    : module_(std::move(module)),
      comm_(comm),
      options_(options),
      who_(std::move(who)),
      name_(who_.label + " " + std::to_string(comm.next_user_number())),
      parameters_(module_ ? parameters_of(*module_) : std::vector<NamedTensor>()),
      remembered_(parameters_) {}  // agree() tells every rank that there is no module

std::string ModuleState::problem() const {
  if (!module_) return "the module is empty";
  if (options_.timeout <= std::chrono::milliseconds(0)) return "the timeout is not positive";
  if (options_.bucket_cap_bytes == 0) return "bucket_cap_bytes is 0";
  if (options_.first_bucket_cap_bytes == 0) return "first_bucket_cap_bytes is 0";
  if (trainable().empty()) {
    return "the module " + module_->name() + " has no parameter that requires grad";
  }
  for (const auto& parameter : parameters_) {
    std::string text = problem_of("parameter " + parameter.name, parameter.tensor);
    if (!text.empty()) return text;
  }
  return buffer_problem();
}

std::string ModuleState::buffer_problem() const {
  for (const auto& buffer : buffers_of(*module_)) {
    std::string text = problem_of("buffer " + buffer.name, buffer.tensor);
    if (!text.empty()) return text;
  }
  return {};
}

Fingerprint ModuleState::fingerprint() const {
  Fingerprint result{{"the wrapper's name", name_}, {"the module", module_ ? "given" : "empty"}};
  for (const auto& parameter : parameters_) {
    result.push_back({"parameter " + parameter.name, describe(parameter.tensor)});
  }
  if (module_) {
    for (const auto& buffer : buffers_of(*module_)) {
      result.push_back({"buffer " + buffer.name, describe(buffer.tensor)});
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

void ModuleState::agree(const Fingerprint& more, const std::string& fault) {
  // What only one rank can see becomes an error of all: it is part of what is compared.
  const bool usable = options_.timeout > std::chrono::milliseconds(0);
  Fingerprint all_of_it = fingerprint();
  all_of_it.insert(all_of_it.end(), more.begin(), more.end());
  if (!fault.empty()) all_of_it.push_back({"a fault", fault});
  require_equal_on_all_ranks(all_of_it, comm_, usable ? options_.timeout : kDefaultTimeout,
                             who_.title + ": the models");
  const std::string bad = problem();
  if (!bad.empty()) throw UsageError(who_.title + ": " + bad);
  if (!fault.empty()) throw UsageError(who_.title + ": " + fault);
  leave_shared_memory();
  std::vector<NamedTensor> all = parameters_;
  for (const auto& buffer : buffers_of(*module_)) all.push_back(buffer);
  broadcast_from_rank_0(tensors_only(without_repeats(all)), comm_,
                        {.label = name_ + " parameters", .timeout = options_.timeout});
}

// A shared optimizer of before has left them where they are one memory for all ranks.
void ModuleState::leave_shared_memory() const {
  for (const auto& [name, tensor] : without_repeats(parameters_)) {
    if (lies_in_region(tensor)) tensor.set_data(tensor.detach().clone());
  }
}

std::vector<at::Tensor> ModuleState::parameters() const {
  return tensors_only(without_repeats(parameters_of(*module_)));
}

std::vector<NamedTensor> ModuleState::named_parameters() const {
  return without_repeats(parameters_);
}

std::vector<NamedTensor> ModuleState::trainable() const {
  std::vector<NamedTensor> result = without_repeats(parameters_);
  std::erase_if(result,
                [](const NamedTensor& parameter) { return !parameter.tensor.requires_grad(); });
  return result;
}

void ModuleState::require_unchanged() const {
  std::string change;
  if (!remembered_.are_parameters_of(*module_))
    change = remembered_.change(parameters_of(*module_));
  if (change.empty()) change = remembered_.change_of_requires_grad();
  if (change.empty()) return;
  refuse("the parameters changed after they were wrapped: " + change + "; wrap the module again");
}

void ModuleState::refuse(const std::string& why) const {
  // Ranks that have the same problem meet here and go on; one that has it alone meets another call
  // of its peers, and all see both.
  const std::string text = who_.title + ": " + why;
  comm_.barrier({.label = name_ + " " + who_.moment + ": " + why, .timeout = options_.timeout});
  throw UsageError(text);
}

void ModuleState::synchronize_buffers() const {
  if (!options_.broadcast_buffers || !module_->is_training()) return;
  broadcast_buffers();
}

void ModuleState::broadcast_buffers() const {
  if (comm_.world_size() == 1) return;
  const std::string bad = buffer_problem();
  if (!bad.empty()) refuse(bad);
  broadcast_from_rank_0(tensors_only(without_repeats(buffers_of(*module_))), comm_,
                        {.label = name_ + " buffers", .timeout = options_.timeout});
}

}  // namespace paceline
