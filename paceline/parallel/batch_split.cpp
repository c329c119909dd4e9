// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/batch_split.h"

#include <algorithm>
#include <map>
#include <string>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "paceline/base/error.h"
#include "paceline/parallel/module_tensors.h"

namespace paceline {
namespace {

std::string output_text(std::size_t index, std::size_t device, const std::string& what) {
  return "DataParallel: output " + std::to_string(index) + " of devices[" + std::to_string(device) +
         "] " + what;
}

std::vector<std::int64_t> sizes_without(const at::Tensor& tensor, std::int64_t dim) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  if (!sizes.empty()) sizes.erase(sizes.begin() + dim);
  return sizes;
}

void require_joinable(std::span<const at::Tensor> parts, std::int64_t dim, std::size_t index) {
  const at::Tensor& first = parts.front();
  for (std::size_t device = 0; device < parts.size(); ++device) {
    const at::Tensor& part = parts[device];
    if (part.layout() != at::kStrided) {
      throw UsageError(output_text(index, device, "is not dense, so it cannot be joined"));
    }
    if (part.dim() != 0 && part.dim() <= dim) {
      throw UsageError(output_text(index, device,
                                   "is " + kind_of(part) + ": it has no dimension " +
                                       std::to_string(dim) + " along which to join"));
    }
    if (part.dim() != first.dim() || part.scalar_type() != first.scalar_type() ||
        sizes_without(part, dim) != sizes_without(first, dim)) {
      throw UsageError(output_text(index, device,
                                   "is " + kind_of(part) + ", which does not fit to the " +
                                       kind_of(first) + " of devices[0]"));
    }
  }
}

}  // namespace

std::vector<Part> split_batch(std::int64_t batch, std::size_t devices) {
  const auto most = static_cast<std::int64_t>(devices);
  const std::int64_t size = std::max<std::int64_t>((batch + most - 1) / most, 1);
  std::vector<Part> parts{{0, std::min(size, batch)}};
  for (std::int64_t begin = size; begin < batch; begin += size) {
    parts.push_back({begin, std::min(size, batch - begin)});
  }
  return parts;
}

std::int64_t batch_size_of(std::span<const at::Tensor> inputs, std::int64_t dim) {
  std::int64_t batch = -1;
  std::size_t first = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const std::string name = "DataParallel: input tensor " + std::to_string(i);
    if (inputs[i].dim() <= dim) {
      throw UsageError(name + " is " + kind_of(inputs[i]) + ": it has no dimension " +
                       std::to_string(dim) +
                       " to split; pass what is the same for all as a number");
    }
    const std::int64_t size = inputs[i].size(dim);
    if (batch >= 0 && size != batch) {
      throw UsageError(name + " has a batch of " + std::to_string(size) + ", but input tensor " +
                       std::to_string(first) + " one of " + std::to_string(batch));
    }
    if (batch < 0) first = i;
    batch = size;
  }
  if (batch < 0) {
    throw UsageError(
        "DataParallel: there is no tensor among the inputs, so nothing to split; a struct of "
        "tensors "
        "needs tensor_fields (paceline/parallel/tensor_tree.h)");
  }
  return batch;
}

at::Tensor copy_to(const c10::Device& device, const at::Tensor& tensor) {
  return share_memory(tensor.device(), device) ? tensor.clone() : tensor.to(device);
}

std::vector<at::Tensor> carry(std::span<const at::Tensor> tensors, const c10::Device& device) {
  std::vector<at::Tensor> arrived(tensors.size());
  std::map<at::ScalarType, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    if (tensors[i].layout() == at::kStrided) {
      alike[tensors[i].scalar_type()].push_back(i);
    } else {
      arrived[i] = tensors[i].to(device);
    }
  }
  for (const auto& [type, members] : alike) {
    std::vector<at::Tensor> flat;
    for (const std::size_t i : members) flat.push_back(tensors[i].reshape(-1));
    const at::Tensor all = at::cat(flat).to(device);
    std::int64_t begin = 0;
    for (const std::size_t i : members) {
      arrived[i] = all.narrow(0, begin, tensors[i].numel()).view(tensors[i].sizes());
      begin += tensors[i].numel();
    }
  }
  return arrived;
}

JoinPlan plan_join(std::span<const at::Tensor> parts, std::int64_t dim, std::size_t index) {
  require_joinable(parts, dim, index);
  JoinPlan plan;
  plan.of_scalars = parts.front().dim() == 0;
  plan.dim = plan.of_scalars ? 0 : dim;
  std::int64_t begin = 0;
  for (const at::Tensor& part : parts) {
    plan.parts.push_back({begin, plan.of_scalars ? 1 : part.size(dim)});
    begin += plan.parts.back().size;
  }
  return plan;
}

at::Tensor view_of_part(const at::Tensor& joined, const JoinPlan& plan, std::size_t device) {
  const Part& part = plan.parts[device];
  return plan.of_scalars ? joined.select(0, part.begin)
                         : joined.narrow(plan.dim, part.begin, part.size);
}

at::Tensor empty_for(std::span<const at::Tensor> parts, const JoinPlan& plan) {
  const Part& last = plan.parts.back();
  const at::Tensor& first = parts.front();
  if (plan.of_scalars) return at::empty({last.begin + last.size}, first.options());
  std::vector<std::int64_t> sizes = first.sizes().vec();
  sizes[static_cast<std::size_t>(plan.dim)] = last.begin + last.size;
  return at::empty(sizes, first.options(), first.suggest_memory_format());
}

}  // namespace paceline
