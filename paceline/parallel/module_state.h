// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A module as DistributedDataParallel sees it: what it is made of, and whether that has changed.

#include <memory>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/parallel/distributed_data_parallel.h"
#include "paceline/parallel/fingerprint.h"
#include "paceline/parallel/module_tensors.h"

namespace paceline {

/// Remembers the parameters that a module had when it was wrapped.
///
/// Threads  One caller at a time.
class ModuleState {
 public:
  ModuleState(std::shared_ptr<::torch::nn::Module> module,
              Communicator& comm,
              const DdpOptions& options);

  /// "ddp 0": tells this wrapper's calls from those of others on the same communicator.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Compares with all ranks and copies rank 0's parameters and buffers to them. Throws the same
  /// UsageError on every rank if that cannot be done.
  void agree();

  /// Throws if a parameter was added, removed or changed: UsageError where all ranks see the same
  /// change, else CommError kMismatch on all.
  void require_unchanged() const;

  /// Copies rank 0's buffers to all ranks, in training mode and if the options say so. Throws as
  /// require_unchanged() if a buffer has become one that cannot be sent.
  void synchronize_buffers() const;

  /// Each parameter once, in the order of registration.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  [[nodiscard]] std::vector<NamedTensor> trainable() const;

 private:
  [[nodiscard]] std::string problem() const;
  [[nodiscard]] std::string buffer_problem() const;
  [[noreturn]] void refuse(const std::string& why) const;
  [[nodiscard]] Fingerprint fingerprint() const;

  std::shared_ptr<::torch::nn::Module> module_;
  Communicator& comm_;
  DdpOptions options_;
  const std::string name_;
  const std::vector<NamedTensor> parameters_;  // as they were when the module was wrapped
  const RememberedTensors remembered_;
};

}  // namespace paceline
