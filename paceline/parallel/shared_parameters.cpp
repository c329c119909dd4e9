// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/shared_parameters.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "paceline/parallel/gradient_arena.h"

namespace paceline {
namespace {

// Bytes from its first element to the end of its last.
std::size_t span_of(const at::Tensor& tensor) {
  std::int64_t elements = 1;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    elements += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return static_cast<std::size_t>(elements * tensor.element_size());
}

}  // namespace

std::string shared_storage_among(const std::vector<NamedTensor>& parameters) {
  std::vector<const NamedTensor*> by_address;
  for (const auto& one : parameters) {
    const at::Tensor& tensor = one.tensor;
    const bool has_memory = tensor.layout() == at::kStrided && tensor.device().is_cpu();
    if (has_memory && tensor.numel() != 0) by_address.push_back(&one);
  }
  const auto address = [](const NamedTensor* one) {
    return static_cast<const std::byte*>(one->tensor.const_data_ptr());
  };
  std::sort(by_address.begin(), by_address.end(),
            [&](auto* a, auto* b) { return address(a) < address(b); });
  for (std::size_t i = 1; i < by_address.size(); ++i) {
    const NamedTensor& before = *by_address[i - 1];
    if (address(&before) + span_of(before.tensor) <= address(by_address[i])) continue;
    return "parameters " + before.name + " and " + by_address[i]->name +
           " share memory; make them one parameter, or copy one";
  }
  return {};
}

SharedParameters::SharedParameters(std::vector<NamedTensor> parameters,
                                   Communicator& comm,
                                   const CallOptions& options)
    : parameters_(std::move(parameters)) {
  const at::NoGradGuard no_grad;
  std::size_t bytes = rounded_to_lines(1);
  for (const auto& one : parameters_) bytes += rounded_to_lines(one.tensor.nbytes());
  region_ = comm.share(bytes, options);
  const c10::Storage storage = storage_over(region_, 0, bytes);
  std::size_t at = 0;
  for (const auto& [name, tensor] : parameters_) {
    const auto offset = static_cast<std::int64_t>(at) / tensor.element_size();
    homes_.push_back(tensor_over(storage, offset, tensor));
    flat_.push_back(at::from_blob(region_.data.get() + at, {tensor.numel()},
                                  tensor.options().requires_grad(false)));
    if (comm.rank() == 0) homes_.back().copy_(tensor);
    at += rounded_to_lines(tensor.nbytes());
  }
  comm.barrier(options);  // rank 0's values are there
  for (std::size_t i = 0; i < homes_.size(); ++i) parameters_[i].tensor.set_data(homes_[i]);
  versions_.resize(parameters_.size());
  samples_.resize(parameters_.size());
  accept();
}

std::string SharedParameters::edited() const {
  std::string names;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    const bool same =
        version_of(tensor) == versions_[i] && at_home(i) && sample_of(i) == samples_[i];
    if (!same) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

void SharedParameters::accept() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::TensorImpl& impl = *parameters_[i].tensor.unsafeGetTensorImpl();
    impl.bump_version();
    versions_[i] = version_of(parameters_[i].tensor);
    samples_[i] = sample_of(i);
  }
}

bool SharedParameters::at_home(std::size_t index) const {
  const at::Tensor& tensor = parameters_[index].tensor;
  const at::Tensor& home = homes_[index];
  return tensor.const_data_ptr() == home.const_data_ptr() &&
         tensor.scalar_type() == home.scalar_type() && tensor.sizes() == home.sizes() &&
         tensor.strides() == home.strides();
}

// Its first, middle and last bytes.
SharedParameters::Sample SharedParameters::sample_of(std::size_t index) const {
  Sample sample{};
  const at::Tensor& flat = flat_[index];
  const std::size_t bytes = flat.nbytes();
  if (bytes == 0) return sample;
  const auto* const data = static_cast<const std::byte*>(flat.const_data_ptr());
  const std::size_t each = std::min(bytes, sizeof(sample[0]));
  const std::size_t last = bytes - each;
  std::memcpy(&sample[0], data, each);
  std::memcpy(&sample[1], data + last / 2, each);
  std::memcpy(&sample[2], data + last, each);
  return sample;
}

std::string SharedParameters::bring_home(Values values) {
  const at::NoGradGuard no_grad;
  std::string strangers;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    if (at_home(i)) continue;
    const bool fits = tensor.sizes() == homes_[i].sizes() && tensor.layout() == at::kStrided &&
                      tensor.scalar_type() == homes_[i].scalar_type();
    if (!fits) strangers += (strangers.empty() ? "" : ", ") + name;
    // By way of a copy: it may be a view of the same memory.
    if (fits && values == Values::kOfParameters) homes_[i].copy_(tensor.detach().clone());
    tensor.set_data(homes_[i]);
  }
  return strangers;
}

bool SharedParameters::touches(const at::Tensor& tensor) const {
  const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
  return data < region_.data.get() + region_.bytes && data + tensor.nbytes() > region_.data.get();
}

}  // namespace paceline
