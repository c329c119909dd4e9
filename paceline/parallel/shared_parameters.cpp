// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/shared_parameters.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "paceline/parallel/gradient_arena.h"

namespace paceline {
namespace {

constexpr std::size_t kLine = 64;

std::size_t rounded_to_lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

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
    if (address(&before) + before.tensor.nbytes() <= address(by_address[i])) continue;
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
  std::size_t bytes = kLine;
  for (const auto& one : parameters_) bytes += rounded_to_lines(one.tensor.nbytes());
  region_ = comm.share(bytes);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                             c10::InefficientStdFunctionContext::makeDataPtr(
                                 region_.data.get(), [keep = region_.data](void*) {}, at::kCPU));
  std::vector<at::Tensor> homes;
  std::size_t at = 0;
  for (const auto& [name, tensor] : parameters_) {
    const auto offset = static_cast<std::int64_t>(at) / tensor.element_size();
    homes.push_back(tensor_over(storage, offset, tensor));
    flat_.push_back(at::from_blob(region_.data.get() + at, {tensor.numel()},
                                  tensor.options().requires_grad(false)));
    if (comm.rank() == 0) homes.back().copy_(tensor);
    at += rounded_to_lines(tensor.nbytes());
  }
  comm.barrier(options);  // rank 0's values are there
  for (std::size_t i = 0; i < homes.size(); ++i) parameters_[i].tensor.set_data(homes[i]);
  versions_.resize(parameters_.size());
  accept();
}

std::string SharedParameters::edited() const {
  std::string names;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    const bool same = static_cast<std::uint32_t>(tensor._version()) == versions_[i] &&
                      tensor.const_data_ptr() == flat_[i].const_data_ptr();
    if (!same) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

void SharedParameters::accept() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::TensorImpl& impl = *parameters_[i].tensor.unsafeGetTensorImpl();
    impl.bump_version();
    versions_[i] = static_cast<std::uint32_t>(parameters_[i].tensor._version());
  }
}

bool SharedParameters::touches(const at::Tensor& tensor) const {
  const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
  return data < region_.data.get() + region_.bytes && data + tensor.nbytes() > region_.data.get();
}

}  // namespace paceline
