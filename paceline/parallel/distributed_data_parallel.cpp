// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/distributed_data_parallel.h"

#include <utility>

#include <ATen/core/grad_mode.h>

#include "paceline/parallel/module_state.h"
#include "paceline/parallel/reducer.h"

namespace paceline {

DdpBase::DdpBase(std::shared_ptr<::torch::nn::Module> module,
                 Communicator& comm,
                 const DdpOptions& options)
    : state_(std::make_unique<ModuleState>(std::move(module), comm, options)) {
  state_->agree();
  reducer_ = Reducer::make(state_->name(), state_->trainable(), comm,
                           {.caps = {options.first_bucket_cap_bytes, options.bucket_cap_bytes},
                            .timeout = options.timeout,
                            .gradients = options.gradients});
}

DdpBase::DdpBase(DdpBase&&) noexcept = default;
DdpBase& DdpBase::operator=(DdpBase&&) noexcept = default;
DdpBase::~DdpBase() = default;

std::vector<at::Tensor> DdpBase::parameters() const { return state_->parameters(); }

void DdpBase::expect_backwards(int count) { reducer_->expect_backwards(count); }

std::vector<BucketInfo> DdpBase::buckets() const { return reducer_->buckets(); }

DdpStatistics DdpBase::statistics() const { return reducer_->statistics(); }

GradientStats DdpBase::stats() const { return reducer_->stats(); }

void DdpBase::start_ledger(std::size_t capacity) { reducer_->phases().start(capacity); }

Ledger DdpBase::take_ledger() { return reducer_->phases().take(); }

void DdpBase::before_forward() {
  if (!at::GradMode::is_enabled()) return;
  reducer_->require_settled();
  state_->require_unchanged();
  state_->synchronize_buffers();
  reducer_->phases().begin(Phase::kForward);
}

void DdpBase::after_forward() {
  if (at::GradMode::is_enabled()) reducer_->phases().end(Phase::kForward);
}

void DdpBase::watch(const at::Tensor& output) {
  if (at::GradMode::is_enabled()) reducer_->watch(output);
}

}  // namespace paceline
