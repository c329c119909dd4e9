// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/tensor_io.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/ScalarType.h>

namespace paceline {
namespace {

Piece piece_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace

std::optional<Dtype> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return Dtype::kF32;
    case at::kDouble: return Dtype::kF64;
    case at::kHalf: return Dtype::kF16;
    case at::kBFloat16: return Dtype::kBF16;
    case at::kByte: return Dtype::kU8;
    case at::kInt: return Dtype::kI32;
    case at::kLong: return Dtype::kI64;
    default: return std::nullopt;
  }
}

std::string name_of(at::ScalarType type) {
  if (const auto dtype = dtype_of(type)) return std::string(name_of(*dtype));
  return c10::toString(type);
}

at::Tensor empty_as(const at::Tensor& like, at::Device device) {
  const auto options = like.options().device(device).requires_grad(false);
  if (!like.is_non_overlapping_and_dense()) return at::empty(like.sizes(), options);
  return at::empty_strided(like.sizes(), like.strides(), options);
}

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::uint32_t>(tensor._version());
}

void broadcast_from_rank_0(std::span<const at::Tensor> tensors,
                           Communicator& comm,
                           const CallOptions& options) {
  if (comm.world_size() == 1) return;
  const at::NoGradGuard no_grad;
  std::vector<Piece> pieces;
  std::vector<std::pair<at::Tensor, at::Tensor>> staged;
  std::uint64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    // A dense tensor's memory is its elements in some order, which is the same on all ranks.
    if (tensor.is_non_overlapping_and_dense()) {
      pieces.push_back(piece_of(tensor));
    } else {
      staged.emplace_back(tensor, tensor.contiguous());
      pieces.push_back(piece_of(staged.back().second));
    }
    bytes += pieces.back().bytes;
  }
  if (bytes == 0) return;
  const Call call{.what = Collective::kBroadcast,
                  .root = 0,
                  .count = bytes,
                  .label = options.label,
                  .algorithm = options.algorithm,
                  .timeout = options.timeout};
  const Buffer buffer{Dtype::kU8, bytes, pieces};
  const Buffer nothing{Dtype::kU8, 0, {}};
  comm.engine().start(call, comm.rank() == 0 ? buffer : nothing, buffer).wait();
  if (comm.rank() == 0) return;
  for (auto& [tensor, copy] : staged) tensor.copy_(copy);
}

}  // namespace paceline
