// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Cutting batches into parts, moving tensors between devices, joining parts.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace paceline {

/// A part of a batch: which places along the batch dimension.
struct Part {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

/// Parts of ceil(batch / devices), the last one smaller; one part if the batch is empty.
[[nodiscard]] std::vector<Part> split_batch(std::int64_t batch, std::size_t devices);

/// The size of the batch that all inputs share.
///
/// Errors  UsageError if there is no tensor, one without this dimension, or two sizes.
[[nodiscard]] std::int64_t batch_size_of(std::span<const at::Tensor> inputs, std::int64_t dim);

/// Whether memory of the one has to be copied to be used on the other. CPUs of DataParallel have
/// one memory.
[[nodiscard]] inline bool share_memory(const c10::Device& a, const c10::Device& b) {
  return a == b;
}

/// Copies a tensor to a device, also to the device where it lies.
[[nodiscard]] at::Tensor copy_to(const c10::Device& device, const at::Tensor& tensor);

/// Tensors on another device, in one copy for all of a type; those that are undefined stay so.
/// Dense ones come back contiguous.
[[nodiscard]] std::vector<at::Tensor> carry(std::span<const at::Tensor> tensors,
                                            const c10::Device& device);

/// How one output lies in parts on the devices.
struct JoinPlan {
  bool of_scalars = false;  ///< each part is one number, the joined tensor a vector
  std::int64_t dim = 0;
  std::vector<Part> parts;  ///< by device
};

/// How to join `parts`, by device, which are output number `index`.
///
/// Errors  UsageError if they cannot be joined along `dim`.
[[nodiscard]] JoinPlan plan_join(std::span<const at::Tensor> parts,
                                 std::int64_t dim,
                                 std::size_t index);

/// What `plan` puts at the place of `device`, as a view of the joined tensor.
[[nodiscard]] at::Tensor view_of_part(const at::Tensor& joined,
                                      const JoinPlan& plan,
                                      std::size_t device);

/// An unset tensor for the joined parts, like the first of them.
[[nodiscard]] at::Tensor empty_for(std::span<const at::Tensor> parts, const JoinPlan& plan);

}  // namespace paceline
