// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/data_parallel.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>

#include "paceline/base/error.h"
#include "paceline/parallel/data_parallel_state.h"
#include "paceline/parallel/module_tensors.h"

namespace paceline {
namespace {

std::string text_of(std::size_t place, const c10::Device& device) {
  return "devices[" + std::to_string(place) + "] (" + device.str() + ")";
}

// Why these devices cannot be used together; empty if this one can.
std::string problem_of(const std::vector<c10::Device>& devices, std::size_t place) {
  const c10::Device& device = devices[place];
  if (device.type() != devices.front().type()) return "is of another kind than devices[0]";
  if (device.is_cpu()) return {};
  if (!device.has_index()) return "lacks an index, such as " + device.str() + ":0";
  const auto first = std::find(devices.begin(), devices.end(), device);
  const auto twin = static_cast<std::size_t>(first - devices.begin());
  return twin == place ? "" : "is devices[" + std::to_string(twin) + "] again";
}

// Why there is no such device; empty if there is.
std::string absence_of(const c10::Device& device) {
  const int count = count_of_devices(device.type());
  if (device.is_cpu() || device.index() < count) return {};
  return "does not exist: LibTorch sees " + std::to_string(count) + " devices of this kind" +
         (count == 0 ? "; is the program linked with LibTorch's library for them?" : "");
}

std::vector<c10::Device> usable(std::vector<c10::Device> devices) {
  if (devices.empty()) {
    throw UsageError("DataParallel: there is no device; paceline::cpu_devices(2) makes two");
  }
  const auto refuse_if = [&](std::size_t place, const std::string& why) {
    if (!why.empty()) {
      throw UsageError("DataParallel: " + text_of(place, devices[place]) + " " + why);
    }
  };
  const std::vector<c10::Device> given = devices;
  for (std::size_t place = 0; place < given.size(); ++place) {
    refuse_if(place, problem_of(given, place));
    if (devices[place].is_cpu()) devices[place] = c10::Device(c10::kCPU);
  }
  for (std::size_t place = 0; place < given.size(); ++place) {
    refuse_if(place, absence_of(given[place]));
  }
  return devices;
}

}  // namespace

std::vector<c10::Device> cpu_devices(int count) {
  if (count < 1) {
    throw UsageError("cpu_devices: " + std::to_string(count) + " devices; at least 1 is needed");
  }
  return std::vector<c10::Device>(static_cast<std::size_t>(count), c10::Device(c10::kCPU));
}

DataParallelBase::DataParallelBase(std::shared_ptr<::torch::nn::Module> module,
                                   std::vector<c10::Device> devices,
                                   const DataParallelOptions& options,
                                   std::optional<MakeReplica> make) {
  if (!module) throw UsageError("DataParallel: the module is empty");
  if (options.batch_dim < 0) {
    throw UsageError("DataParallel: batch_dim is " + std::to_string(options.batch_dim) +
                     "; it counts from the front, so it is at least 0");
  }
  state_ = std::make_shared<DataParallelState>(std::move(module), usable(std::move(devices)),
                                               options, make);
}

DataParallelBase::DataParallelBase(DataParallelBase&&) noexcept = default;
DataParallelBase& DataParallelBase::operator=(DataParallelBase&&) noexcept = default;
DataParallelBase::~DataParallelBase() = default;

DataParallelState& DataParallelBase::state() const {
  if (!state_) throw UsageError("this DataParallel was moved from: use the one that it moved to");
  return *state_;
}

std::vector<at::Tensor> DataParallelBase::parameters() const {
  return state().replicas().parameters();
}

const std::vector<c10::Device>& DataParallelBase::devices() const {
  return state().replicas().devices();
}

DataParallelStatistics DataParallelBase::statistics() const { return state().statistics(); }

void DataParallelBase::start_ledger(std::size_t capacity) {
  state().books().ledger().start(capacity);
}

Ledger DataParallelBase::take_ledger() { return state().books().ledger().take(); }

std::shared_ptr<::torch::nn::Module> DataParallelBase::replica(std::size_t device) const {
  return state().replicas().on(device);
}

void DataParallelBase::refuse_type_of_replica(std::size_t device) const {
  throw UsageError("DataParallel: the replica for " + text_of(device, devices()[device]) +
                   " is a " + replica(device)->name() + ", not a " + replica(0)->name() +
                   " as the module");
}

std::vector<at::Tensor> DataParallelBase::run(const std::vector<at::Tensor>& inputs,
                                              const ReplicaForward& forward) {
  return state().run(inputs, forward).joined;
}

at::Tensor DataParallelBase::run_loss(const std::vector<at::Tensor>& inputs,
                                      const ReplicaForward& forward) {
  const ReplicaForward one_number = [&](std::size_t device, std::span<const at::Tensor> tensors) {
    const at::Tensor loss = forward(device, tensors).front();
    if (!loss.defined() || loss.numel() != 1) {
      throw UsageError("loss_fn returned " +
                       (loss.defined() ? "a tensor " + list_of(loss.sizes()) : "no tensor") +
                       ", not one number");
    }
    if (!loss.is_floating_point()) {
      throw UsageError("loss_fn returned a number of type " + name_of(loss.scalar_type()) +
                       "; a loss must be floating");
    }
    return std::vector<at::Tensor>{loss.reshape({})};
  };
  const auto [joined, parts] = state().run(inputs, one_number);
  const std::int64_t batch = parts.back().begin + parts.back().size;
  std::vector<double> shares;
  for (const Part& part : parts) {
    shares.push_back(batch == 0 ? 1.0
                                : static_cast<double>(part.size) / static_cast<double>(batch));
  }
  return joined.front().mul(at::tensor(shares, joined.front().options())).sum();
}

}  // namespace paceline
