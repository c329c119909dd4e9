// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/update_rule.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/scalar_tensor.h>

namespace paceline {
namespace {

bool in_unit_range(double beta) { return beta >= 0 && beta < 1; }

/// torch::optim::SGD's order of operations, with the scratch for its temporaries: the same kernels,
/// the same bits.
class SgdRule final : public UpdateRule {
 public:
  explicit SgdRule(const SharedSgdOptions& options)
      : momentum_(options.momentum), dampening_(options.dampening), nesterov_(options.nesterov) {}

  [[nodiscard]] std::vector<std::string> state_names() const override {
    if (momentum_ == 0) return {};
    return {"momentum_buffer"};
  }
  [[nodiscard]] Fingerprint traits() const override {
    return {{"option momentum", exact_text(momentum_)},
            {"option dampening", exact_text(dampening_)},
            {"option nesterov", nesterov_ ? "on" : "off"}};
  }
  [[nodiscard]] std::string fault() const override {
    const std::string fault = fault_of_number("momentum", momentum_);
    if (!fault.empty()) return fault;
    if (!std::isfinite(dampening_)) return fault_of_number("dampening", dampening_);
    if (nesterov_ && (momentum_ == 0 || dampening_ != 0)) {
      return "nesterov needs a momentum and no dampening";
    }
    return {};
  }
  void update(const Cell& cell,
              const at::Tensor& gradient,
              const GroupRates& rates,
              std::int64_t step) const override {
    at::Tensor scratch = cell.scratch;
    at::Tensor direction = gradient;
    if (rates.weight_decay != 0) {
      direction = at::add_out(scratch, direction, cell.parameter, rates.weight_decay);
    }
    if (momentum_ != 0) {
      const at::Tensor& buffer = cell.state.front();
      if (step == 1) {
        buffer.copy_(direction);
      } else {
        buffer.mul_(momentum_).add_(direction, 1 - dampening_);
      }
      direction = nesterov_ ? at::add_out(scratch, direction, buffer, momentum_) : buffer;
    }
    cell.parameter.add_(direction, -1 * rates.lr);
  }

  [[nodiscard]] std::optional<ScaledAdd> plain_update(const GroupRates& rates,
                                                      Dtype dtype) const override {
    const auto fused = dtype == Dtype::kF32 ? f32_fused_ : f64_fused_;
    const bool has_kernel = (dtype == Dtype::kF32 || dtype == Dtype::kF64) && fused;
    if (!has_kernel || momentum_ != 0 || rates.weight_decay != 0) return std::nullopt;
    // ATen refuses a rate that the type cannot hold.
    if (dtype == Dtype::kF32 && rates.lr > std::numeric_limits<float>::max()) return std::nullopt;
    return ScaledAdd{.scale = -1 * rates.lr, .fused = *fused};
  }

 private:
  const double momentum_, dampening_;
  const bool nesterov_;
  const std::optional<bool> f32_fused_ = aten_fuses(at::kFloat);
  const std::optional<bool> f64_fused_ = aten_fuses(at::kDouble);
};

/// LibTorch's fused kernel: one pass over memory. Without a grad_scale it only reads the gradient.
class AdamRule final : public UpdateRule {
 public:
  explicit AdamRule(const SharedAdamOptions& options)
      : betas_(options.betas), eps_(options.eps), decoupled_(options.decoupled_weight_decay) {}

  [[nodiscard]] std::vector<std::string> state_names() const override {
    return {"exp_avg", "exp_avg_sq"};
  }
  [[nodiscard]] Fingerprint traits() const override {
    return {{"option betas[0]", exact_text(betas_[0])},
            {"option betas[1]", exact_text(betas_[1])},
            {"option eps", exact_text(eps_)},
            {"option decoupled_weight_decay", decoupled_ ? "on" : "off"}};
  }
  [[nodiscard]] std::string fault() const override {
    if (!in_unit_range(betas_[0]) || !in_unit_range(betas_[1])) {
      return "betas are " + exact_text(betas_[0]) + " and " + exact_text(betas_[1]) +
             ", not in [0, 1)";
    }
    return fault_of_number("eps", eps_);
  }
  void update(const Cell& cell,
              const at::Tensor& gradient,
              const GroupRates& rates,
              std::int64_t step) const override {
    const auto kernel = decoupled_ ? &call_adamw : &call_adam;
    kernel(cell, gradient, at::scalar_tensor(static_cast<double>(step), at::kFloat), rates, *this);
  }

 private:
  static void call_adam(const Cell& cell,
                        const at::Tensor& gradient,
                        const at::Tensor& step,
                        const GroupRates& rates,
                        const AdamRule& rule) {
    at::_fused_adam_(cell.parameter, gradient, cell.state[0], cell.state[1], {}, step, rates.lr,
                     rule.betas_[0], rule.betas_[1], rates.weight_decay, rule.eps_,
                     /*amsgrad=*/false, /*maximize=*/false);
  }
  static void call_adamw(const Cell& cell,
                         const at::Tensor& gradient,
                         const at::Tensor& step,
                         const GroupRates& rates,
                         const AdamRule& rule) {
    at::_fused_adamw_(cell.parameter, gradient, cell.state[0], cell.state[1], {}, step, rates.lr,
                      rule.betas_[0], rule.betas_[1], rates.weight_decay, rule.eps_,
                      /*amsgrad=*/false, /*maximize=*/false);
  }

  const std::array<double, 2> betas_;
  const double eps_;
  const bool decoupled_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_rule(const SharedSgdOptions& options) {
  return std::make_unique<SgdRule>(options);
}

std::unique_ptr<UpdateRule> make_rule(const SharedAdamOptions& options) {
  return std::make_unique<AdamRule>(options);
}

std::optional<bool> aten_fuses(at::ScalarType type) {
  if (type != at::kFloat && type != at::kDouble) return std::nullopt;
  // Whole vectors and what is left over, whatever their length.
  constexpr std::int64_t kCount = 251;
  // (1 + e)² - (1 + 2e) is e², or 0 if the square is rounded first.
  const double e = type == at::kFloat ? 0x1p-12 : 0x1p-27;
  const auto options = at::TensorOptions().dtype(type).device(at::kCPU);
  const at::NoGradGuard no_grad;
  const at::Tensor sum = at::full({kCount}, -(1 + 2 * e), options);
  sum.add_(at::full({kCount}, 1 + e, options), 1 + e);
  const auto fused = at::ne(sum, 0).sum().item<std::int64_t>();
  if (fused != 0 && fused != kCount) return std::nullopt;
  return fused != 0;
}

std::string exact_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string fault_of_number(const std::string& name, double value) {
  if (!std::isfinite(value)) return name + " is " + exact_text(value) + ", not finite";
  return value < 0 ? name + " is " + exact_text(value) + ", not at least 0" : std::string();
}

}  // namespace paceline
