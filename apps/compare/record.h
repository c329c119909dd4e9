// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What a training run is told, and what each of its processes writes down. Plain data: it travels
/// from the processes that train to the one that compares.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/compare/contestant.h"
#include "paceline/base/ledger.h"
#include "paceline/base/types.h"

namespace paceline::apps {

/// How to train.
struct TrainingSettings {
  Contestant contestant = {};
  std::string model = {};
  std::int64_t batch_size = 0;  ///< of all ranks together
  double learning_rate = 0;
  std::uint64_t seed = 0;
  std::optional<Algorithm> algorithm = {};
  std::string data = {};               ///< folder of the images
  std::vector<std::string> text = {};  ///< files of the text
};

/// What is trained, on what.
struct ModelFacts {
  std::string description = {};
  std::uint64_t parameters = 0;
  std::uint64_t trainable_bytes = 0;  ///< M
  std::uint64_t tensors = 0;
  std::string data_name = {};
  std::uint64_t samples = 0;
  std::string unit = {};  ///< "images", "sequences"
  std::string libtorch = {};
};

using Instant = std::chrono::steady_clock::time_point;

/// One step of training. The batch was made before it, the loss is read after it.
struct StepRecord {
  Instant begin{};
  Instant backward{};  ///< the loss is there; backward begins
  Instant update{};    ///< gradients are there; the optimizer begins
  Instant end{};
  double loss = 0;  ///< mean over this process's samples
  bool operator==(const StepRecord&) const = default;
};

/// Gradients that travel together.
struct BucketFacts {
  std::string label = {};  ///< as in CallRecord
  std::uint64_t count = 0;
  Dtype dtype = Dtype::kF32;
  Algorithm algorithm = Algorithm::kRing;
  std::vector<std::string> parameters = {};
};

/// What one process measured: a rank of DDP, or all there is.
struct ProcessRecord {
  int rank = 0;
  std::vector<StepRecord> steps = {};
  Ledger ledger = {};                          ///< of those steps
  std::vector<std::uint64_t> peak_bytes = {};  ///< parameters, gradients, outputs; of each device
  std::vector<BucketFacts> buckets = {};       ///< DDP
  ModelFacts facts = {};
};

}  // namespace paceline::apps
