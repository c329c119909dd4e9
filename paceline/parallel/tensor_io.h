// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Tensors seen as the bytes that comm moves.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/base/types.h"
#include "paceline/comm/communicator.h"

namespace paceline {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// The type as comm knows it; none if comm does not.
[[nodiscard]] std::optional<Dtype> dtype_of(at::ScalarType type);

/// "f32", or LibTorch's own name for a type that comm does not know.
[[nodiscard]] std::string name_of(at::ScalarType type);

/// Memory for a tensor of `like`'s shape, strides (row by row if it is not dense) and type; neither
/// cleared nor known to autograd.
[[nodiscard]] at::Tensor empty_as(const at::Tensor& like, at::Device device = at::kCPU);

/// How often it was changed in place; 0 for one made in InferenceMode, which does not count.
[[nodiscard]] std::uint32_t version_of(const at::Tensor& tensor);

/// Copies rank 0's values into the tensors of every rank, in one message stream, whatever their
/// types. Autograd does not notice: version counters stay, so values that autograd saved must not
/// differ from what arrives.
///
/// Shape   The same tensors, in the same order, of the same shapes and strides on all ranks; on the
///         CPU.
/// Order   Collective.
/// Errors  CommError: the tensors of the other ranks are then unspecified.
void broadcast_from_rank_0(std::span<const at::Tensor> tensors,
                           Communicator& comm,
                           const CallOptions& options);

}  // namespace paceline
