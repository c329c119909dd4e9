// SPDX-License-Identifier: Apache-2.0
// Saving and loading a shared optimizer's state, whole.
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/serialize/archive.h>

#include "paceline/base/error.h"
#include "paceline/parallel/gradient_arena.h"
#include "paceline/parallel/shared_training.h"

namespace paceline {
namespace {

// The elements of `flat`, which lie as `parameter`'s do, in its shape; and back.
at::Tensor shaped(const at::Tensor& flat, const at::Tensor& parameter) {
  return tensor_over(flat.storage(), 0, parameter);
}

at::Tensor flattened(const at::Tensor& value, const at::Tensor& parameter) {
  at::Tensor flat = at::empty({parameter.numel()}, parameter.options().requires_grad(false));
  shaped(flat, parameter).copy_(value);
  return flat;
}

// So that counting on never overflows.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

c10::IValue read_value(::torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  if (!archive.try_read(key, value)) throw UsageError("it has no '" + key + "'");
  return value;
}

at::Tensor read_state(::torch::serialize::InputArchive& archive,
                      const std::string& key,
                      const at::Tensor& like) {
  at::Tensor saved;
  if (!archive.try_read(key, saved, /*is_buffer=*/true) || !saved.defined()) {
    throw UsageError("it has no tensor '" + key + "'");
  }
  if (saved.sizes() != like.sizes() || saved.scalar_type() != like.scalar_type()) {
    throw UsageError(key + " is of another shape or type");
  }
  return saved;
}

std::string rate_key(const char* what, std::size_t group) {
  return std::string(what) + "/" + std::to_string(group);
}

}  // namespace

void SharedTraining::save(::torch::serialize::OutputArchive& archive) const {
  guarded([&] { write(archive); });
}

void SharedTraining::write(::torch::serialize::OutputArchive& archive) const {
  const at::NoGradGuard no_grad;
  archive.write("optimizer", c10::IValue(title_));
  archive.write("steps", c10::IValue(steps_));
  archive.write("groups", c10::IValue(static_cast<std::int64_t>(groups_.size())));
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    archive.write(rate_key("lr", group), c10::IValue(groups_.at(group).lr));
    archive.write(rate_key("weight_decay", group), c10::IValue(groups_.at(group).weight_decay));
  }
  const std::vector<std::string> names = rule_->state_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto whole = states_[i].gather(rounds_, trainable_, comm_, calls("state"));
    for (std::size_t p = 0; p < trainable_.size(); ++p) {
      const auto& [name, tensor] = trainable_[p];
      archive.write(names[i] + "." + name, shaped(whole[p], tensor), /*is_buffer=*/true);
    }
  }
}

SharedTraining::Loaded SharedTraining::read(::torch::serialize::InputArchive& archive) const {
  if (const std::string by = read_value(archive, "optimizer").toStringRef(); by != title_) {
    throw UsageError("it was saved by " + by);
  }
  Loaded loaded{.steps = read_value(archive, "steps").toInt(), .rates = {}, .states = {}};
  if (loaded.steps < 0 || loaded.steps > kMostSteps) {
    throw UsageError("the number of steps is " + std::to_string(loaded.steps));
  }
  if (read_value(archive, "groups").toInt() != static_cast<std::int64_t>(groups_.size())) {
    throw UsageError("it has another number of groups");
  }
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    loaded.rates.push_back({read_value(archive, rate_key("lr", group)).toDouble(),
                            read_value(archive, rate_key("weight_decay", group)).toDouble()});
    const std::string fault = fault_of_rates(loaded.rates.back());
    if (!fault.empty()) throw UsageError(fault);
  }
  for (const std::string& state : rule_->state_names()) {
    auto& list = loaded.states.emplace_back();
    for (const auto& [name, tensor] : trainable_) {
      list.push_back(flattened(read_state(archive, state + "." + name, tensor), tensor));
    }
  }
  return loaded;
}

void SharedTraining::load(::torch::serialize::InputArchive& archive) {
  const at::NoGradGuard no_grad;
  guarded([&] {
    Loaded loaded;
    std::string fault;
    try {
      loaded = read(archive);
    } catch (const std::exception& error) {
      fault = first_line(error);
    }
    Fingerprint traits{{"a fault", fault}, {"steps", std::to_string(loaded.steps)}};
    for (const GroupRates& rates : loaded.rates) {
      traits.push_back({"rates", exact_text(rates.lr) + ", " + exact_text(rates.weight_decay)});
    }
    require_equal_on_all_ranks(traits, comm_, timeout_, title_ + ": the archives");
    if (!fault.empty()) throw UsageError(title_ + ": the archive cannot be loaded: " + fault);
    adopt(loaded);
  });
}

void SharedTraining::adopt(const Loaded& loaded) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    states_[i].adopt(rounds_, loaded.states[i], comm_.rank());
  }
  for (std::size_t group = 0; group < loaded.rates.size(); ++group) {
    groups_.set(group, loaded.rates[group]);
  }
  rates_agreed_ = true;
  steps_ = loaded.steps;
}

}  // namespace paceline
