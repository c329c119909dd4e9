// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/step_training.h"

#include <torch/torch.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "apps/bench/together.h"
#include "apps/bench/torch/step_models.h"
#include "paceline/base/error.h"
#include "paceline/parallel/distributed_data_parallel.h"
#include "paceline/parallel/gradient_arena.h"
#include "paceline/parallel/shared_optimizer.h"

namespace paceline::apps {
namespace {

constexpr int kWarmUpSteps = 5;
constexpr std::int64_t kTargets = 10;
constexpr double kAdamRate = 1e-4;
constexpr double kSgdRate = 1e-3;

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        std::vector<torch::Tensor> parameters) {
  if (name == "adam") return std::make_unique<torch::optim::Adam>(std::move(parameters), kAdamRate);
  return std::make_unique<torch::optim::SGD>(std::move(parameters), kSgdRate);
}

/// One mode's model on one rank.
class StepTrainer {
 public:
  StepTrainer(std::shared_ptr<Model> model, torch::Tensor batch)
      : model_(std::move(model)),
        batch_(std::move(batch)),
        targets_(torch::arange(batch_.size(0)) % kTargets) {}
  StepTrainer(const StepTrainer&) = delete;
  StepTrainer& operator=(const StepTrainer&) = delete;
  virtual ~StepTrainer() = default;

  void step() {
    const std::int64_t begin = now_ns();
    drop_gradients();
    backward(torch::nn::functional::cross_entropy(forward(batch_), targets_));
    update();
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
  virtual void drop_gradients() = 0;
  virtual void update() = 0;

 private:
  std::shared_ptr<Model> model_;
  torch::Tensor batch_, targets_;
  std::vector<std::int64_t> times_ns_;
};

/// With an optimizer of LibTorch.
class TorchTrainer : public StepTrainer {
 public:
  TorchTrainer(const StepOptions& options, std::shared_ptr<Model> model, torch::Tensor batch)
      : StepTrainer(std::move(model), std::move(batch)),
        optimizer_(make_optimizer(options.optimizer, this->model().parameters())) {}

 private:
  void drop_gradients() override { optimizer_->zero_grad(); }
  void update() override { optimizer_->step(); }

  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

std::vector<NamedTensor> parameters_of(const Model& model) {
  std::vector<NamedTensor> parameters;
  for (const auto& one : model.named_parameters()) parameters.push_back({one.key(), one.value()});
  return parameters;
}

bool has_arena(Communicator& comm) {
  return comm.world_size() > 1 && comm.share_engine()->shares_memory();
}

/// Its gradients are born where those of DDP are, so that only averaging makes the difference.
class LocalTrainer final : public TorchTrainer {
 public:
  LocalTrainer(const StepOptions& options,
               std::shared_ptr<Model> model,
               torch::Tensor batch,
               Communicator& comm)
      : TorchTrainer(options, std::move(model), std::move(batch)) {
    if (!has_arena(comm)) return;
    arena_ = std::make_unique<GradientArena>(comm.share_engine(), parameters_of(this->model()));
  }

 private:
  void backward(const torch::Tensor& loss) override {
    if (arena_) arena_->serve_here();
    loss.backward();
    if (arena_) arena_->leave_here();
  }

  std::unique_ptr<GradientArena> arena_;
};

class DdpTrainer final : public TorchTrainer {
 public:
  DdpTrainer(const StepOptions& options,
             const std::shared_ptr<Model>& model,
             torch::Tensor batch,
             Communicator& comm)
      : TorchTrainer(options, model, std::move(batch)), ddp_(model, comm) {}

  [[nodiscard]] GradientBytes gradient_bytes() const override { return ddp_.stats().last_step; }

 private:
  torch::Tensor forward(const torch::Tensor& x) override { return ddp_(x); }

  DistributedDataParallel<Model> ddp_;
};

class SharedTrainer final : public StepTrainer {
 public:
  SharedTrainer(const StepOptions& options,
                const std::shared_ptr<Model>& model,
                torch::Tensor batch,
                Communicator& comm)
      : StepTrainer(model, std::move(batch)) {
    if (options.optimizer == "adam") {
      adam_.emplace(model, comm, SharedAdamOptions{.lr = kAdamRate});
    } else {
      sgd_.emplace(model, comm, SharedSgdOptions{.lr = kSgdRate});
    }
  }

  [[nodiscard]] GradientBytes gradient_bytes() const override {
    return optimizer().gradient_bytes();
  }

 private:
  SharedOptimizer& optimizer() {
    if (adam_) return *adam_;
    return *sgd_;
  }
  [[nodiscard]] const SharedOptimizer& optimizer() const {
    if (adam_) return *adam_;
    return *sgd_;
  }
  void drop_gradients() override { optimizer().zero_grad(); }
  void update() override { optimizer().step(); }

  std::optional<SharedAdam> adam_;
  std::optional<SharedSGD> sgd_;
};

/// Where gradients have no arena they would go back to the system after each step, and how often
/// their pages come anew would decide the times.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

std::unique_ptr<StepTrainer> make_step_trainer(StepMode mode,
                                               const StepOptions& options,
                                               const torch::Tensor& batch,
                                               Communicator& comm) {
  torch::manual_seed(0);
  auto model = make_step_model(options.model);
  if (mode == StepMode::kDdp) return std::make_unique<DdpTrainer>(options, model, batch, comm);
  if (mode == StepMode::kShared) {
    return std::make_unique<SharedTrainer>(options, model, batch, comm);
  }
  return std::make_unique<LocalTrainer>(options, model, batch, comm);
}

void require_links_for(const StepOptions& options, Communicator& comm) {
  const bool shared = std::ranges::find(options.modes, StepMode::kShared) != options.modes.end();
  if (!shared || comm.world_size() == 1 || comm.share_engine()->shares_memory()) return;
  const std::string why = comm.link_reason().empty() ? "" : " (" + comm.link_reason() + ")";
  throw UsageError("mode shared needs ranks that share memory, and these are joined by " +
                   comm.link() + why + "; leave it out: --mode local,ddp");
}

/// One step of each in turn, and the next turn begins with the second: each comes first equally
/// often, and none follows itself, its model still in the cache, more often than another.
void take_turns(std::vector<std::unique_ptr<StepTrainer>>& trainers,
                Communicator& comm,
                std::int64_t steps) {
  for (std::int64_t i = 0; i < kWarmUpSteps + steps; ++i) {
    for (const auto& trainer : trainers) {
      comm.barrier({.label = "meet"});
      trainer->step();
    }
    std::rotate(trainers.begin(), trainers.begin() + 1, trainers.end());
  }
}

/// Adds what each rank has found. Collective.
void add_times(const StepTrainer& trainer, Communicator& comm, ModeTimes& times) {
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
  times.bytes_copied = here.copied;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    times.bytes_in_place = std::min(times.bytes_in_place, static_cast<std::uint64_t>(bytes[i]));
    times.bytes_copied = std::max(times.bytes_copied, static_cast<std::uint64_t>(bytes[i + 1]));
  }
}

/// New models, and `steps` steps of each mode. Every second time the last mode's model is made
/// first: what is made first may lie better in memory.
void add_stretch(StepFigures& figures,
                 const StepOptions& options,
                 const torch::Tensor& batch,
                 Communicator& comm,
                 std::int64_t index) {
  const std::int64_t steps =
      begin_of_stretch(index + 1, options.steps) - begin_of_stretch(index, options.steps);
  if (steps == 0) return;
  std::vector<ModeTimes*> modes;
  for (ModeTimes& mode : figures.modes) modes.push_back(&mode);
  if (index % 2 != 0) std::ranges::reverse(modes);
  std::vector<std::unique_ptr<StepTrainer>> trainers;
  std::vector<const StepTrainer*> in_order;
  for (const ModeTimes* mode : modes) {
    trainers.push_back(make_step_trainer(mode->mode, options, batch, comm));
    in_order.push_back(trainers.back().get());
  }
  take_turns(trainers, comm, steps);
  figures.parameters = count_parameters(in_order.front()->model());
  figures.tensors = in_order.front()->model().parameters().size();
  for (std::size_t i = 0; i < modes.size(); ++i) add_times(*in_order[i], comm, *modes[i]);
}

}  // namespace

StepFigures train_steps(Communicator& comm, const StepOptions& options) {
  require_links_for(options, comm);
  if (!has_arena(comm)) keep_freed_memory();
  at::set_num_threads(1);
  torch::manual_seed(static_cast<std::uint64_t>(comm.rank()) + 1);
  const torch::Tensor batch = make_step_batch(options.model);
  StepFigures figures{.link = comm.link(), .link_reason = comm.link_reason(), .modes = {}};
  for (const StepMode mode : options.modes) figures.modes.push_back({.mode = mode});
  for (std::int64_t i = 0; i < kStepStretches; ++i) add_stretch(figures, options, batch, comm, i);
  return figures;
}

}  // namespace paceline::apps
