// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Gradients that travel together: their flat memory, and views of it that become `.grad`.

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/parallel/tensor_io.h"

namespace paceline {

/// Owns the memory of its gradients, one after the other without gaps, and the collective that
/// averages it in place.
///
/// Threads   One at a time. Between start() and wait() nothing else may touch the memory.
/// Lifetime  A collective in flight keeps the memory, not the bucket.
class Bucket {
 public:
  /// `members` are indices into `parameters`, all of type `dtype`.
  Bucket(std::string label,
         Dtype dtype,
         std::vector<std::size_t> members,
         std::span<const NamedTensor> parameters);

  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  [[nodiscard]] Dtype dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] const std::vector<std::size_t>& members() const noexcept { return members_; }

  /// Makes `gradient` a view of slot `slot`, and copies its values there unless it is that already.
  /// Returns whether it copied.
  bool take(std::size_t slot, at::Tensor& gradient);

  /// Begins to average the memory over all ranks.
  void start(Communicator& comm, std::chrono::milliseconds timeout);
  [[nodiscard]] bool started() const noexcept { return started_; }

  /// Blocks until the memory holds the mean; start() may then be called again.
  void wait();

 private:
  [[nodiscard]] bool is_view(std::size_t slot, const at::Tensor& gradient) const;

  std::string label_;
  Dtype dtype_;
  std::vector<std::size_t> members_;
  std::uint64_t count_ = 0;
  at::Tensor memory_;
  std::vector<at::Tensor> views_;
  std::array<Piece, 1> pieces_;
  Work work_;
  bool started_ = false;
};

}  // namespace paceline
