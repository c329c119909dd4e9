// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How DataParallel runs: replicas, threads, and what connects their graphs to the user's.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "paceline/parallel/batch_split.h"
#include "paceline/parallel/data_parallel.h"
#include "paceline/parallel/device_books.h"
#include "paceline/parallel/device_context.h"
#include "paceline/parallel/device_threads.h"
#include "paceline/parallel/replicas.h"

namespace paceline {

/// One forward through the replicas, kept until its backward.
struct ReplicaPass {
  /// The graph of one replica, from its own leaves to its own outputs.
  struct Replica {
    std::vector<at::Tensor> parameters;  // leaves
    std::vector<at::Tensor> inputs;      // leaves too
    std::vector<at::Tensor> outputs;     // those that are defined
    std::vector<bool> defined;           // by output
    std::vector<DeviceBooks::Holding> held;
  };

  std::vector<Part> parts;
  std::vector<c10::Stream> streams;
  std::vector<Replica> replicas;  // by device
  std::vector<JoinPlan> joins;    // by output
  std::vector<DeviceBooks::Holding> held;
  bool retain = false;  // what the backward that runs now was told about the graph

  [[nodiscard]] bool released() const { return replicas.empty(); }
  /// Frees the graphs.
  void release();
  /// Output number k of each device.
  [[nodiscard]] std::vector<at::Tensor> parts_of_output(std::size_t k) const;
};

/// Takes a flag for a scope.
///
/// Errors  UsageError if it is taken.
class InUse {
 public:
  explicit InUse(std::atomic<bool>& flag);
  ~InUse() { flag_ = false; }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::atomic<bool>& flag_;
};

/// Threads  One caller at a time, else UsageError.
class DataParallelState : public std::enable_shared_from_this<DataParallelState> {
 public:
  using Forward =
      std::function<std::vector<at::Tensor>(std::size_t device, std::span<const at::Tensor>)>;
  struct Outputs {
    std::vector<at::Tensor> joined;
    std::vector<Part> parts;
  };

  DataParallelState(std::shared_ptr<::torch::nn::Module> module,
                    std::vector<c10::Device> devices,
                    const DataParallelOptions& options,
                    const std::optional<Replicas::Make>& make);

  [[nodiscard]] const Replicas& replicas() const noexcept { return replicas_; }
  [[nodiscard]] DeviceBooks& books() noexcept { return books_; }
  [[nodiscard]] DataParallelStatistics statistics() const;

  /// The forward on all devices, and its place in the caller's graph.
  [[nodiscard]] Outputs run(const std::vector<at::Tensor>& inputs, const Forward& forward);

  /// What autograd calls: the joined outputs, and the gradients of parameters and then inputs.
  [[nodiscard]] std::vector<at::Tensor> forward(ReplicaPass& pass,
                                                std::span<const at::Tensor> inputs,
                                                const Forward& forward,
                                                const CallerContext& caller);
  [[nodiscard]] std::vector<at::Tensor> backward(ReplicaPass& pass,
                                                 std::span<const at::Tensor> gradients,
                                                 const std::vector<bool>& wanted);

 private:
  void refresh(const ReplicaPass& pass, const CallerContext& caller);
  void forward_on(ReplicaPass& pass,
                  std::size_t device,
                  std::span<const at::Tensor> inputs,
                  const Forward& forward);
  [[nodiscard]] std::vector<at::Tensor> scatter(std::span<const at::Tensor> inputs,
                                                const Part& part,
                                                std::size_t device);
  [[nodiscard]] std::vector<at::Tensor> join_outputs(ReplicaPass& pass);
  [[nodiscard]] at::Tensor join(std::span<const at::Tensor> parts, const JoinPlan& plan);

  using Gradients = std::vector<std::vector<at::Tensor>>;  // by device, then parameters and inputs
  [[nodiscard]] Gradients backward_on_all(ReplicaPass& pass,
                                          std::span<const at::Tensor> gradients,
                                          const std::vector<bool>& wanted);
  [[nodiscard]] std::vector<at::Tensor> backward_on(const ReplicaPass& pass,
                                                    std::size_t device,
                                                    std::span<const at::Tensor> gradients,
                                                    const std::vector<bool>& wanted);
  [[nodiscard]] at::Tensor sum(at::Tensor total, const at::Tensor& part);
  [[nodiscard]] std::vector<at::Tensor> sum_of(const ReplicaPass& pass, Gradients& gradients);
  [[nodiscard]] at::Tensor joined_gradient(const ReplicaPass& pass,
                                           const Gradients& gradients,
                                           std::size_t input);

  const DataParallelOptions options_;
  Replicas replicas_;
  DeviceBooks books_;
  std::vector<DeviceBooks::Holding> parameters_held_;
  DeviceThreads threads_;
  std::atomic<bool> in_use_ = false;
  std::atomic<std::uint64_t> forwards_ = 0;
  std::atomic<std::uint64_t> backwards_ = 0;
  std::atomic<std::uint64_t> trainable_bytes_ = 0;
};

}  // namespace paceline
