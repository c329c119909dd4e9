// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/replicas.h"

#include <algorithm>
#include <mutex>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/module.h>

#include "paceline/base/error.h"
#include "paceline/parallel/batch_split.h"

namespace paceline {
namespace {

std::string place_of(std::size_t device) { return "devices[" + std::to_string(device) + "]"; }

// The global generators as they were, also if something is thrown meanwhile.
class KeepGenerators {
 public:
  explicit KeepGenerators(const std::vector<c10::Device>& devices)
      : generators_{at::detail::getDefaultCPUGenerator()} {
    for (const c10::Device& device : devices) {
      if (!device.is_cpu()) generators_.push_back(at::globalContext().defaultGenerator(device));
    }
    for (auto& generator : generators_) {
      const std::lock_guard lock(generator.mutex());
      states_.push_back(generator.get_state());
    }
  }
  ~KeepGenerators() {
    for (std::size_t i = 0; i < generators_.size(); ++i) {
      const std::lock_guard lock(generators_[i].mutex());
      generators_[i].set_state(states_[i]);
    }
  }
  KeepGenerators(const KeepGenerators&) = delete;
  KeepGenerators& operator=(const KeepGenerators&) = delete;

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

std::vector<NamedTensor> state_of(const ::torch::nn::Module& module) {
  std::vector<NamedTensor> state = parameters_of(module);
  for (const auto& buffer : buffers_of(module)) state.push_back(buffer);
  return without_repeats(state);
}

void require_usable(const ::torch::nn::Module& module, const c10::Device& device) {
  for (const auto& [name, tensor] : state_of(module)) {
    std::string what;
    if (tensor.device() != device) {
      what = "is on " + tensor.device().str() + ", but devices[0] is " + device.str() +
             "; move the module there first";
    } else if (tensor.layout() != at::kStrided) {
      what = "is not dense, so it cannot be replicated";
    } else if (tensor.requires_grad() && !tensor.is_leaf()) {
      what = "is no leaf of autograd's graph";
    }
    if (!what.empty()) throw UsageError("DataParallel: " + name + " of the module " + what);
  }
}

// Names, shapes, and which names are one tensor.
Fingerprint shape_of(const ::torch::nn::Module& module) {
  Fingerprint result;
  std::vector<NamedTensor> seen;
  const auto add = [&](const std::string& kind, const NamedTensor& one) {
    const auto twin = std::find_if(seen.begin(), seen.end(), [&](const NamedTensor& other) {
      return other.tensor.is_same(one.tensor);
    });
    const std::string sizes = list_of(one.tensor.sizes());
    result.push_back(
        {kind + one.name, twin == seen.end() ? sizes : "the same tensor as " + twin->name});
    seen.push_back(one);
  };
  for (const auto& parameter : parameters_of(module)) add("parameter ", parameter);
  for (const auto& buffer : buffers_of(module)) add("buffer ", buffer);
  return result;
}

// A parameter, buffer or submodule that both have; empty if there is none.
std::string shared_by(const ::torch::nn::Module& a, const ::torch::nn::Module& b) {
  for (const auto& mine : state_of(a)) {
    for (const auto& other : state_of(b)) {
      if (mine.tensor.is_same(other.tensor)) return mine.name;
    }
  }
  const auto others = b.modules();
  for (const auto& module : a.modules()) {
    if (std::find(others.begin(), others.end(), module) != others.end()) {
      return "its module " + module->name();
    }
  }
  return {};
}

}  // namespace

Replicas::Replicas(std::shared_ptr<Module> module,
                   std::vector<c10::Device> devices,
                   const std::optional<Make>& make_one)
    : devices_(std::move(devices)),
      modules_{std::move(module)},
      parameters_(parameters_of(*modules_.front())),
      buffers_(buffers_of(*modules_.front())) {
  require_usable(*modules_.front(), devices_.front());
  state_.push_back(tensors_only(state_of(*modules_.front())));
  const c10::InferenceMode normal_tensors(false);
  const KeepGenerators keep(devices_);
  for (std::size_t device = 1; device < devices_.size(); ++device) {
    modules_.push_back(make(device, make_one));
    require_alike(device);
    require_separate(device);
    place(device);
    pair_submodules(device);
  }
  sort_by_kind();
}

std::shared_ptr<Replicas::Module> Replicas::make(std::size_t device,
                                                 const std::optional<Make>& make_one) {
  const std::string what = make_one ? "the factory" : "clone()";
  std::string why = "returned nothing";
  try {
    auto replica = make_one ? (*make_one)() : modules_.front()->clone();
    if (replica) return replica;
  } catch (const c10::Error& error) {
    why = std::string("failed: ") + error.what_without_backtrace();
  } catch (const std::exception& error) {
    why = std::string("failed: ") + error.what();
  }
  throw UsageError("DataParallel: no replica of " + modules_.front()->name() + " for " +
                   place_of(device) + ": " + what + " " + why +
                   (make_one ? ""
                             : "; derive the module from torch::nn::Cloneable, or pass a factory "
                               "that makes new ones"));
}

void Replicas::require_alike(std::size_t device) const {
  const std::string who = "the replica for " + place_of(device);
  const std::string difference =
      first_difference(shape_of(*modules_.front()), shape_of(*modules_[device]), who, "the module");
  if (!difference.empty()) throw UsageError("DataParallel: the replica differs: " + difference);
}

void Replicas::require_separate(std::size_t device) const {
  for (std::size_t other = 0; other < device; ++other) {
    const std::string shared = shared_by(*modules_[device], *modules_[other]);
    if (shared.empty()) continue;
    throw UsageError("DataParallel: the replica for " + place_of(device) + " shares " + shared +
                     " with that for " + place_of(other) +
                     ": each call of reset() or of the factory has to make new parameters, buffers "
                     "and submodules");
  }
}

void Replicas::place(std::size_t device) {
  if (!devices_[device].is_cpu()) modules_[device]->to(devices_[device]);
  state_.push_back(tensors_only(state_of(*modules_[device])));
  for (std::size_t i = 0; i < state_.front().size(); ++i) {
    state_.back()[i].set_data(empty_as(state_.front()[i], devices_[device]));
  }
}

void Replicas::pair_submodules(std::size_t device) {
  const auto originals = modules_.front()->modules();
  const auto copies = modules_[device]->modules();
  if (originals.size() != copies.size()) {
    throw UsageError("DataParallel: the replica for " + place_of(device) + " has " +
                     std::to_string(copies.size()) + " modules, not " +
                     std::to_string(originals.size()) + " as the module");
  }
  for (std::size_t i = 0; i < originals.size(); ++i) {
    submodules_.emplace_back(originals[i], copies[i]);
  }
}

void Replicas::sort_by_kind() {
  weights_ = {};
  others_ = {};
  trainable_.assign(devices_.size(), {});
  weights_.copies.resize(devices_.size());
  others_.copies.resize(devices_.size());
  for (std::size_t i = 0; i < state_.front().size(); ++i) {
    const at::Tensor& original = state_.front()[i];
    Group& group = original.requires_grad() ? weights_ : others_;
    group.originals.push_back(original);
    for (std::size_t device = 1; device < devices_.size(); ++device) {
      at::Tensor& tensor = state_[device][i];
      tensor.set_requires_grad(original.requires_grad());
      Copies& copies = group.copies[device];
      copies.tensors.push_back(tensor);
      copies.unwatched.emplace_back(tensor.variable_data());
      copies.versions.push_back(version_of(original));
    }
  }
  trainable_.front() = weights_.originals;
  for (std::size_t device = 1; device < devices_.size(); ++device) {
    trainable_[device] = weights_.copies[device].tensors;
  }
}

void Replicas::follow_module() {
  const auto parameters = parameters_of(*modules_.front());
  std::string change = parameters_.change(parameters);
  if (change.empty()) change = buffers_.change(buffers_of(*modules_.front()));
  if (!change.empty()) {
    throw UsageError("DataParallel: the module changed after it was wrapped: " + change +
                     "; wrap it again");
  }
  if (!parameters_.change_of_requires_grad().empty()) {
    parameters_ = RememberedTensors(parameters);
    sort_by_kind();
  }
  for (const auto& [original, copy] : submodules_) {
    if (copy->is_training() != original->is_training()) copy->train(original->is_training());
  }
}

void Replicas::refresh(std::size_t device, DeviceBooks& books) {
  if (device == 0) return;
  const at::NoGradGuard no_grad;
  refresh(weights_, Copy::kReplicate, device, books);
  refresh(others_, Copy::kState, device, books);
}

void Replicas::refresh(Group& group, Copy what, std::size_t device, DeviceBooks& books) const {
  if (group.originals.empty()) return;
  CopyTimer timer(books, what, 0, device);
  Copies& copies = group.copies[device];
  at::_foreach_copy_(copies.unwatched, share_memory(devices_.front(), devices_[device])
                                           ? group.originals
                                           : carry(group.originals, devices_[device]));
  timer.done(bytes_of(group.originals));
  for (std::size_t i = 0; i < group.originals.size(); ++i) {
    // Old values that a graph has saved are gone: its backward has to fail, as the module's would.
    const std::uint32_t version = version_of(group.originals[i]);
    if (std::exchange(copies.versions[i], version) == version) continue;
    copies.tensors[i].unsafeGetTensorImpl()->bump_version();
  }
}

std::vector<at::Tensor> Replicas::parameters() const {
  return tensors_only(without_repeats(parameters_of(*modules_.front())));
}

}  // namespace paceline
