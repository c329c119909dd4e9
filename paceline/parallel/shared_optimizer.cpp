// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/shared_optimizer.h"

#include <utility>

#include "paceline/parallel/shared_training.h"

namespace paceline {

SharedOptimizer::SharedOptimizer(std::string title,
                                 std::shared_ptr<::torch::nn::Module> module,
                                 Communicator& comm,
                                 const SharedOptions& options,
                                 double lr,
                                 double weight_decay,
                                 std::unique_ptr<UpdateRule> rule)
    : training_(std::make_unique<SharedTraining>(std::move(title),
                                                 std::move(module),
                                                 comm,
                                                 options,
                                                 GroupRates{lr, weight_decay},
                                                 std::move(rule))) {}
SharedOptimizer::~SharedOptimizer() = default;

void SharedOptimizer::step() { training_->step(); }
void SharedOptimizer::zero_grad() { training_->zero_grad(); }
double SharedOptimizer::clip_grad_norm(double max_norm) {
  return training_->clip_grad_norm(max_norm);
}
void SharedOptimizer::write_once(const std::function<void()>& edit) { training_->write_once(edit); }
void SharedOptimizer::save(::torch::serialize::OutputArchive& archive) const {
  training_->save(archive);
}
void SharedOptimizer::load(::torch::serialize::InputArchive& archive) { training_->load(archive); }

double SharedOptimizer::lr(std::size_t group) const { return training_->rates().at(group).lr; }
double SharedOptimizer::weight_decay(std::size_t group) const {
  return training_->rates().at(group).weight_decay;
}
void SharedOptimizer::set_lr(double lr) {
  for (std::size_t group = 0; group < group_count(); ++group) set_lr(group, lr);
}
void SharedOptimizer::set_lr(std::size_t group, double lr) {
  training_->set_rates(group, {lr, weight_decay(group)});
}
void SharedOptimizer::set_weight_decay(std::size_t group, double weight_decay) {
  training_->set_rates(group, {lr(group), weight_decay});
}
std::size_t SharedOptimizer::group_count() const { return training_->rates().size(); }
std::int64_t SharedOptimizer::steps() const { return training_->steps(); }
GradientBytes SharedOptimizer::gradient_bytes() const { return training_->gradient_bytes(); }
std::size_t SharedOptimizer::state_bytes() const { return training_->state_bytes(); }

SharedSGD::SharedSGD(std::shared_ptr<::torch::nn::Module> module,
                     Communicator& comm,
                     const SharedSgdOptions& options)
    : SharedOptimizer("SharedSGD",
                      std::move(module),
                      comm,
                      options.shared,
                      options.lr,
                      options.weight_decay,
                      make_rule(options)) {}

SharedAdam::SharedAdam(std::shared_ptr<::torch::nn::Module> module,
                       Communicator& comm,
                       const SharedAdamOptions& options)
    : SharedOptimizer("SharedAdam",
                      std::move(module),
                      comm,
                      options.shared,
                      options.lr,
                      options.weight_decay,
                      make_rule(options)) {}

}  // namespace paceline
