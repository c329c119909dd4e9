// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Training as one contestant does it, a step at a time. This header shows no LibTorch.

#include <memory>

#include "apps/compare/record.h"
#include "paceline/comm/communicator.h"

namespace paceline::apps {

/// A process's part in the training: all of it, or one rank's.
///
/// Threads  One at a time.
class Trainer {
 public:
  Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  virtual ~Trainer() = default;

  /// Order   DDP: collective.
  /// Errors  std::runtime_error if the loss is no longer finite; what training throws.
  virtual double step() = 0;

  /// Forgets what was recorded so far, and counts bytes from now on.
  virtual void start_recording() = 0;

  /// What was recorded since then.
  [[nodiscard]] virtual ProcessRecord take_record() = 0;
};

/// All ways but DDP.
///
/// Errors  UsageError, std::runtime_error: data that cannot be read, devices that are not there.
[[nodiscard]] std::unique_ptr<Trainer> make_trainer(const TrainingSettings& settings);

/// DDP's. `comm` outlives it.
[[nodiscard]] std::unique_ptr<Trainer> make_rank_trainer(const TrainingSettings& settings,
                                                         Communicator& comm);

}  // namespace paceline::apps
