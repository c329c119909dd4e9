// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Gradients that travel together: memory for those that are copied, and the places of the others.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/parallel/gradient_arena.h"
#include "paceline/parallel/gradient_place.h"
#include "paceline/parallel/tensor_io.h"

namespace paceline {

/// One logical buffer of gradients, one after the other without gaps, and the collective that
/// averages it in place. Without an arena each gradient has a home in the bucket's own memory, and
/// becomes a view of it; with one only the small ones have, and the others stay where they are if
/// they lie in the arena and nobody else uses their memory. Bits do not depend on that.
///
/// Threads   One at a time. Between start() and wait() nothing else may touch the memory.
/// Lifetime  A collective in flight keeps the memory, not the bucket.
class Bucket {
 public:
  /// `members` are indices into `parameters`, all of type `dtype`. `arena`, if any, lives longer.
  Bucket(std::string label,
         Dtype dtype,
         std::vector<std::size_t> members,
         std::span<const NamedTensor> parameters,
         Engine& engine,
         GradientArena* arena);

  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  [[nodiscard]] Dtype dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] const std::vector<std::size_t>& members() const noexcept { return members_; }
  [[nodiscard]] bool has_home(std::size_t slot) const { return slots_[slot].home.defined(); }

  /// Makes `gradient` slot `slot`'s: as it is, or as a copy that it becomes. `passing` as in
  /// obstacle_of().
  CopyReason take(std::size_t slot, at::Tensor& gradient, const at::Tensor& passing = {});

  /// Begins to average what was taken over all ranks.
  void start(Engine& engine, std::chrono::milliseconds timeout, Progress progress);
  [[nodiscard]] bool started() const noexcept { return started_; }

  /// Blocks until the memory holds the mean; start() may then be called again. If that fails, the
  /// memory is kept until the bucket is gone.
  void wait();

 private:
  struct Slot {
    at::Tensor parameter;
    at::Tensor home = {};
    Piece piece = {};
    c10::Storage taken = {};  // the memory of a gradient that has no home
  };
  struct Kept {
    at::Tensor memory;
    std::vector<c10::Storage> taken;
  };

  void furnish(Engine& engine);
  [[nodiscard]] CopyReason take_in_place(Slot& slot,
                                         at::Tensor& gradient,
                                         const at::Tensor& passing);
  [[nodiscard]] std::vector<Piece> pieces() const;

  std::string label_;
  Dtype dtype_;
  std::vector<std::size_t> members_;
  std::uint64_t count_ = 0;
  GradientArena* arena_;
  at::Tensor memory_;  // of all homes
  std::vector<Slot> slots_;
  std::shared_ptr<Kept> kept_;
  Work work_;
  bool started_ = false;
};

}  // namespace paceline
