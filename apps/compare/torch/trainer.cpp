// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/torch/trainer.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "apps/compare/torch/models.h"
#include "apps/compare/torch/samples.h"
#include "paceline/base/error.h"
#include "paceline/parallel/data_parallel.h"
#include "paceline/parallel/distributed_data_parallel.h"
#include "paceline/parallel/distributed_sampler.h"

namespace paceline::apps {
namespace {

using Batch = torch::data::Example<>;
using Clock = std::chrono::steady_clock;

// Of a ledger: bytes per step need every record.
constexpr std::size_t kUnbounded = std::numeric_limits<std::size_t>::max();

/// The samples of each step. Together, the ranks of any world take the same ones in the same step:
/// each pass uses only whole batches.
class Order {
 public:
  Order(std::size_t samples, std::int64_t batch_size, std::uint64_t seed, int rank, int world)
      : sampler_(samples, rank, world, {.seed = seed}),
        per_step_(static_cast<std::size_t>(batch_size / world)),
        steps_per_pass_(samples / static_cast<std::size_t>(batch_size)) {
    if (steps_per_pass_ == 0) {
      throw UsageError("--batch-size is " + std::to_string(batch_size) + ": there are only " +
                       std::to_string(samples) + " samples");
    }
  }

  std::vector<std::size_t> next() {
    if (step_++ % steps_per_pass_ == 0) {
      sampler_.set_epoch(pass_++);
      sampler_.reset();
    }
    return sampler_.next(per_step_).value();
  }

 private:
  DistributedSampler sampler_;
  std::size_t per_step_;
  std::size_t steps_per_pass_;
  std::size_t step_ = 0;
  std::int64_t pass_ = 0;
};

std::uint64_t bytes_of(const std::vector<torch::Tensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.defined()) bytes += tensor.nbytes();
  }
  return bytes;
}

/// What all ways have in common.
class TrainerBase : public Trainer {
 public:
  TrainerBase(const TrainingSettings& settings, int rank, int world)
      : settings_(settings),
        samples_(read_samples(settings)),
        order_(samples_->count(), settings.batch_size, settings.seed, rank, world),
        rank_(rank) {
    torch::manual_seed(settings.seed);
    model_ = make_model(settings.model, samples_->classes());
    optimizer_ = std::make_unique<torch::optim::SGD>(
        model_->parameters(), torch::optim::SGDOptions(settings.learning_rate).momentum(0.9));
  }

  double step() override {
    const Batch batch = samples_->batch(order_.next());
    meet();
    StepRecord record{.begin = Clock::now()};
    optimizer_->zero_grad();
    const torch::Tensor output = forward(batch.data);
    const torch::Tensor loss = loss_of(output, batch.target);
    record.backward = Clock::now();
    loss.backward();
    record.update = Clock::now();
    optimizer_->step();
    record.end = Clock::now();
    record.loss = loss.item<double>();
    require_finite(record.loss);
    output_bytes_ = output.nbytes();
    steps_.push_back(record);
    return record.loss;
  }

  void start_recording() override { steps_.clear(); }

  ProcessRecord take_record() override {
    return {.rank = rank_,
            .steps = std::exchange(steps_, {}),
            .ledger = {},
            .peak_bytes = {held_bytes()},
            .buckets = {},
            .facts = facts()};
  }

 protected:
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  /// Lets no rank begin before the others can.
  virtual void meet() {}

  [[nodiscard]] const std::shared_ptr<Model>& model() const { return model_; }
  [[nodiscard]] const TrainingSettings& settings() const { return settings_; }
  [[nodiscard]] std::int64_t classes() const { return samples_->classes(); }

 private:
  void require_finite(double loss) const {
    if (std::isfinite(loss)) return;
    throw std::runtime_error("the loss of step " + std::to_string(steps_.size() + 1) + " is " +
                             std::to_string(loss) + ": try a smaller --lr");
  }

  /// Parameters, gradients and output, as they lie in memory after backward.
  [[nodiscard]] std::uint64_t held_bytes() const {
    std::vector<torch::Tensor> gradients;
    for (const torch::Tensor& parameter : model_->parameters()) {
      gradients.push_back(parameter.grad());
    }
    return bytes_of(model_->parameters()) + bytes_of(gradients) + output_bytes_;
  }

  [[nodiscard]] ModelFacts facts() const {
    ModelFacts facts{.description = description_of(settings_.model),
                     .tensors = model_->parameters().size(),
                     .data_name = samples_->name(),
                     .samples = samples_->count(),
                     .unit = samples_->unit(),
                     .libtorch = TORCH_VERSION};
    for (const torch::Tensor& parameter : model_->parameters()) {
      facts.parameters += static_cast<std::uint64_t>(parameter.numel());
      if (parameter.requires_grad()) facts.trainable_bytes += parameter.nbytes();
    }
    return facts;
  }

  TrainingSettings settings_;
  std::unique_ptr<Samples> samples_;
  Order order_;
  int rank_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::vector<StepRecord> steps_;
  std::uint64_t output_bytes_ = 0;
};

class SingleTrainer final : public TrainerBase {
 public:
  explicit SingleTrainer(const TrainingSettings& settings) : TrainerBase(settings, 0, 1) {}

 private:
  torch::Tensor forward(const torch::Tensor& x) override { return model()->forward(x); }
};

class DpTrainer final : public TrainerBase {
 public:
  explicit DpTrainer(const TrainingSettings& settings)
      : TrainerBase(settings, 0, 1), dp_(model(), cpu_devices(settings.contestant.ranks), [this] {
          return make_model(this->settings().model, classes());
        }) {}

  void start_recording() override {
    TrainerBase::start_recording();
    dp_.start_ledger(kUnbounded);
  }

  ProcessRecord take_record() override {
    ProcessRecord record = TrainerBase::take_record();
    record.ledger = dp_.take_ledger();
    record.peak_bytes = dp_.statistics().peak_bytes;
    return record;
  }

 private:
  torch::Tensor forward(const torch::Tensor& x) override { return dp_(x); }

  DataParallel<Model> dp_;
};

class RankTrainer final : public TrainerBase {
 public:
  RankTrainer(const TrainingSettings& settings, Communicator& comm)
      : TrainerBase(settings, comm.rank(), comm.world_size()), comm_(comm), ddp_(model(), comm) {}

  void start_recording() override {
    TrainerBase::start_recording();
    comm_.start_ledger(kUnbounded);
    ddp_.start_ledger(kUnbounded);
  }

  ProcessRecord take_record() override {
    ProcessRecord record = TrainerBase::take_record();
    record.ledger = comm_.take_ledger();
    record.ledger.phases = ddp_.take_ledger().phases;
    for (const BucketInfo& bucket : ddp_.buckets()) {
      record.buckets.push_back({.label = bucket.label,
                                .count = bucket.count,
                                .dtype = bucket.dtype,
                                .algorithm = bucket.algorithm,
                                .parameters = bucket.parameters});
    }
    return record;
  }

 private:
  torch::Tensor forward(const torch::Tensor& x) override { return ddp_(x); }
  void meet() override { comm_.barrier({.label = "meet"}); }

  Communicator& comm_;
  DistributedDataParallel<Model> ddp_;
};

}  // namespace

std::unique_ptr<Trainer> make_trainer(const TrainingSettings& settings) {
  if (settings.contestant.mechanism == Mechanism::kDp) return std::make_unique<DpTrainer>(settings);
  return std::make_unique<SingleTrainer>(settings);
}

std::unique_ptr<Trainer> make_rank_trainer(const TrainingSettings& settings, Communicator& comm) {
  return std::make_unique<RankTrainer>(settings, comm);
}

}  // namespace paceline::apps
