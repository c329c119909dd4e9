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

/// Who wraps the module, as its errors and calls name it.
struct WrapperName {
  std::string title = "DistributedDataParallel";
  std::string label = "ddp";
  std::string moment = "forward";  // when changes of the module are noticed
};

/// Remembers the parameters that a module had when it was wrapped.
///
/// Threads  One caller at a time.
class ModuleState {
 public:
  ModuleState(std::shared_ptr<::torch::nn::Module> module,
              Communicator& comm,
              const DdpOptions& options,
              WrapperName who = {});

  /// "ddp 0": tells this wrapper's calls from those of others on the same communicator.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Compares with all ranks, `more` too, and copies rank 0's parameters and buffers to them.
  /// Throws the same UsageError on every rank if that cannot be done, or `fault` is not empty.
  void agree(const Fingerprint& more = {}, const std::string& fault = {});

  /// Throws if a parameter was added, removed or changed: UsageError where all ranks see the same
  /// change, else CommError kMismatch on all.
  void require_unchanged() const;

  /// Copies rank 0's buffers to all ranks, in training mode and if the options say so. Throws as
  /// require_unchanged() if a buffer has become one that cannot be sent.
  void synchronize_buffers() const;
  /// The same in any mode and whatever the options say.
  void broadcast_buffers() const;

  /// Throws what require_unchanged() does.
  [[noreturn]] void refuse(const std::string& why) const;

  /// Each parameter once, in the order of registration.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  [[nodiscard]] std::vector<NamedTensor> named_parameters() const;
  [[nodiscard]] std::vector<NamedTensor> trainable() const;

 private:
  void leave_shared_memory() const;
  [[nodiscard]] std::string problem() const;
  [[nodiscard]] std::string buffer_problem() const;
  [[nodiscard]] Fingerprint fingerprint() const;

  std::shared_ptr<::torch::nn::Module> module_;
  Communicator& comm_;
  DdpOptions options_;
  const WrapperName who_;
  const std::string name_;
  const std::vector<NamedTensor> parameters_;  // as they were when the module was wrapped
  const RememberedTensors remembered_;
};

}  // namespace paceline
