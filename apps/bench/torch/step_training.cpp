// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/step_training.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "apps/bench/together.h"
#include "apps/bench/torch/step_models.h"
#include "paceline/parallel/distributed_data_parallel.h"
#include "paceline/parallel/gradient_arena.h"

namespace paceline::apps {
namespace {

constexpr int kWarmUpSteps = 5;
constexpr std::int64_t kTargets = 10;

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        std::vector<torch::Tensor> parameters) {
  if (name == "adam") return std::make_unique<torch::optim::Adam>(std::move(parameters), 1e-4);
  return std::make_unique<torch::optim::SGD>(std::move(parameters), 1e-3);
}

/// One mode's model on one rank.
class StepTrainer {
 public:
  StepTrainer(const StepOptions& options, std::shared_ptr<Model> model, torch::Tensor batch)
      : model_(std::move(model)),
        batch_(std::move(batch)),
        targets_(torch::arange(batch_.size(0)) % kTargets),
        optimizer_(make_optimizer(options.optimizer, model_->parameters())) {}
  StepTrainer(const StepTrainer&) = delete;
  StepTrainer& operator=(const StepTrainer&) = delete;
  virtual ~StepTrainer() = default;

  void step() {
    const std::int64_t begin = now_ns();
    optimizer_->zero_grad();
    backward(torch::nn::functional::cross_entropy(forward(batch_), targets_));
    optimizer_->step();
    times_ns_.push_back(now_ns() - begin);
  }

  /// Of the last step.
  [[nodiscard]] virtual GradientBytes gradient_bytes() const { return {}; }
  /// Without those that warm up.
  [[nodiscard]] std::span<const std::int64_t> times_ns() const {
    return std::span(times_ns_).subspan(kWarmUpSteps);
  }
  [[nodiscard]] const Model& model() const { return *model_; }

 protected:
  virtual torch::Tensor forward(const torch::Tensor& x) { return model_->forward(x); }
  virtual void backward(const torch::Tensor& loss) { loss.backward(); }

 private:
  std::shared_ptr<Model> model_;
  torch::Tensor batch_, targets_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<std::int64_t> times_ns_;
};

std::vector<NamedTensor> parameters_of(const Model& model) {
  std::vector<NamedTensor> parameters;
  for (const auto& one : model.named_parameters()) parameters.push_back({one.key(), one.value()});
  return parameters;
}

/// Its gradients are born where those of DDP are, so that only averaging makes the difference.
class LocalTrainer final : public StepTrainer {
 public:
  LocalTrainer(const StepOptions& options,
               std::shared_ptr<Model> model,
               torch::Tensor batch,
               Communicator& comm)
      : StepTrainer(options, std::move(model), std::move(batch)) {
    const auto engine = comm.share_engine();
    if (comm.world_size() == 1 || !engine->shares_memory()) return;
    arena_ = std::make_unique<GradientArena>(engine, parameters_of(this->model()));
  }

 private:
  void backward(const torch::Tensor& loss) override {
    if (arena_) arena_->serve_here();
    loss.backward();
    if (arena_) arena_->leave_here();
  }

  std::unique_ptr<GradientArena> arena_;
};

class DdpTrainer final : public StepTrainer {
 public:
  DdpTrainer(const StepOptions& options,
             const std::shared_ptr<Model>& model,
             torch::Tensor batch,
             Communicator& comm)
      : StepTrainer(options, model, std::move(batch)), ddp_(model, comm) {}

  [[nodiscard]] GradientBytes gradient_bytes() const override { return ddp_.stats().last_step; }

 private:
  torch::Tensor forward(const torch::Tensor& x) override { return ddp_(x); }

  DistributedDataParallel<Model> ddp_;
};

std::unique_ptr<StepTrainer> make_step_trainer(StepMode mode,
                                               const StepOptions& options,
                                               const torch::Tensor& batch,
                                               Communicator& comm) {
  torch::manual_seed(0);
  auto model = make_step_model(options.model);
  if (mode == StepMode::kDdp) return std::make_unique<DdpTrainer>(options, model, batch, comm);
  return std::make_unique<LocalTrainer>(options, model, batch, comm);
}

/// One step of each in turn, and then in the other order: what comes first is not always the same.
void take_turns(std::vector<std::unique_ptr<StepTrainer>>& trainers,
                Communicator& comm,
                std::int64_t steps) {
  for (std::int64_t i = 0; i < kWarmUpSteps + steps; ++i) {
    for (const auto& trainer : trainers) {
      comm.barrier({.label = "meet"});
      trainer->step();
    }
    std::ranges::reverse(trainers);
  }
}

/// Joins what each rank has found. Collective.
ModeTimes times_of(const StepTrainer& trainer, StepMode mode, Communicator& comm) {
  ModeTimes times{.mode = mode};
  const auto mine = trainer.times_ns();
  const std::vector<std::int64_t> all = gather(comm, mine);
  for (std::size_t step = 0; step < mine.size(); ++step) {
    std::int64_t slowest = 0;
    for (std::size_t i = step; i < all.size(); i += mine.size())
      slowest = std::max(slowest, all[i]);
    times.step_ms.push_back(1e-6 * static_cast<double>(slowest));
  }
  const GradientBytes here = trainer.gradient_bytes();
  const std::array both{static_cast<std::int64_t>(here.in_place),
                        static_cast<std::int64_t>(here.copied)};
  const std::vector<std::int64_t> bytes = gather(comm, both);
  times.bytes_in_place = here.in_place;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    times.bytes_in_place = std::min(times.bytes_in_place, static_cast<std::uint64_t>(bytes[i]));
    times.bytes_copied = std::max(times.bytes_copied, static_cast<std::uint64_t>(bytes[i + 1]));
  }
  return times;
}

}  // namespace

StepFigures train_steps(Communicator& comm, const StepOptions& options) {
  at::set_num_threads(1);
  torch::manual_seed(static_cast<std::uint64_t>(comm.rank()) + 1);
  const torch::Tensor batch = make_step_batch(options.model);
  std::vector<std::unique_ptr<StepTrainer>> trainers;
  std::vector<const StepTrainer*> in_order;
  for (const StepMode mode : options.modes) {
    trainers.push_back(make_step_trainer(mode, options, batch, comm));
    in_order.push_back(trainers.back().get());
  }
  take_turns(trainers, comm, options.steps);
  StepFigures figures{.link = comm.link(),
                      .link_reason = comm.link_reason(),
                      .parameters = count_parameters(in_order.front()->model()),
                      .tensors = in_order.front()->model().parameters().size(),
                      .modes = {}};
  for (std::size_t i = 0; i < in_order.size(); ++i) {
    figures.modes.push_back(times_of(*in_order[i], options.modes[i], comm));
  }
  return figures;
}

}  // namespace paceline::apps
