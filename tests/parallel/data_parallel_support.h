// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the DataParallel tests share: models, and the same arithmetic without the wrapper.

#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "close.h"
#include "models.h"
#include "paceline/base/error.h"
#include "paceline/parallel/data_parallel.h"

namespace paceline::tests {

// That LibTorch's operators use on a thread that starts now.
inline int threads_of_a_new_thread() {
  int count = 0;
  std::thread([&] { count = at::get_num_threads(); }).join();
  return count;
}

/// Can be cloned, as its parts are made in reset().
struct SmallImpl : ::torch::nn::Cloneable<SmallImpl> {
  SmallImpl() { SmallImpl::reset(); }
  void reset() override {
    body = register_module("body", ::torch::nn::Linear(4, 8));
    head = register_module("head", ::torch::nn::Linear(8, 3));
  }
  ::torch::Tensor forward(::torch::Tensor x) { return head(::torch::tanh(body(x))); }
  ::torch::nn::Linear body = nullptr, head = nullptr;
};
TORCH_MODULE(Small);

/// A convolutional net without BatchNorm.
struct PlainCnnImpl : ::torch::nn::Module {
  ::torch::Tensor forward(::torch::Tensor x) {
    x = ::torch::relu(conv2(::torch::relu(conv1(x))));
    return fc(::torch::max_pool2d(x, 2).flatten(1));
  }
  ::torch::nn::Conv2d conv1 =
      register_module("conv1", ::torch::nn::Conv2d(::torch::nn::Conv2dOptions(1, 4, 3)));
  ::torch::nn::Conv2d conv2 =
      register_module("conv2", ::torch::nn::Conv2d(::torch::nn::Conv2dOptions(4, 6, 3)));
  ::torch::nn::Linear fc = register_module("fc", ::torch::nn::Linear(24, 5));
  // Terms of all dot products on the way to a gradient, as in models.h.
  static constexpr double kChain = 9 + 36 + 24 + 5 + 54 + 144;
};
TORCH_MODULE(PlainCnn);

/// Has two outputs, and both are its input.
struct TwiceImpl : ::torch::nn::Module {
  std::pair<::torch::Tensor, ::torch::Tensor> forward(const ::torch::Tensor& x) { return {x, x}; }
  ::torch::Tensor unused = register_parameter("unused", ::torch::zeros({1}));
};

template <typename Holder>
Holder make() {
  return Holder();
}

/// Class numbers for a batch.
inline ::torch::Tensor classes(std::int64_t count, int step, std::int64_t kinds = 5) {
  return (::torch::arange(count) * 7 + step * 3).remainder(kinds);
}

inline ::torch::Tensor flat(const std::vector<::torch::Tensor>& tensors) {
  std::vector<::torch::Tensor> parts;
  for (const auto& tensor : tensors) parts.push_back(tensor.detach().reshape(-1));
  return ::torch::cat(parts).clone();
}

inline ::torch::Tensor flat_gradients(const std::vector<::torch::Tensor>& parameters) {
  std::vector<::torch::Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  return flat(gradients);
}

/// What `action` throws as an Error; "" and a failure if it throws nothing or something else.
template <typename Error, typename F>
std::string error_of(F&& action) {
  try {
    std::forward<F>(action)();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
}

/// DataParallel's arithmetic on one device, one part after the other: a twin for each part but the
/// first, all with the net's values; outputs joined, gradients summed in order.
template <typename Holder>
class PartsInTurn {
 public:
  PartsInTurn(Holder net, std::size_t parts) : nets_{std::move(net)} {
    while (nets_.size() < parts) nets_.push_back(Holder());
  }

  /// Leaves gradients in the net's `.grad`, and returns the loss.
  template <typename Loss>
  ::torch::Tensor step(const ::torch::Tensor& x, const Loss& loss_of) {
    const auto parts = x.chunk(static_cast<std::int64_t>(nets_.size()));
    std::vector<::torch::Tensor> outputs, leaves;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      copy_values(i);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      outputs.push_back(nets_[i](parts[i]));
      leaves.push_back(outputs.back().detach());
    }
    ::torch::Tensor joined = ::torch::cat(leaves).requires_grad_();
    const auto loss = loss_of(joined);
    const auto upstream = ::torch::autograd::grad({loss}, {joined})[0];
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto mine = upstream.narrow(0, begin, outputs[i].size(0)).clone();
      add_gradients(::torch::autograd::grad({outputs[i]}, nets_[i]->parameters(), {mine}), i);
      begin += outputs[i].size(0);
    }
    return loss.detach();
  }

 private:
  void copy_values(std::size_t to) {
    if (to == 0) return;
    const ::torch::NoGradGuard no_grad;
    for (const auto& item : nets_[0]->named_parameters()) {
      nets_[to]->named_parameters()[item.key()].copy_(item.value());
    }
    for (const auto& item : nets_[0]->named_buffers()) {
      nets_[to]->named_buffers()[item.key()].copy_(item.value());
    }
  }
  void add_gradients(const std::vector<::torch::Tensor>& gradients, std::size_t part) {
    const auto parameters = nets_[0]->parameters();
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      auto parameter = parameters[k];
      parameter.mutable_grad() = part == 0 ? gradients[k] : parameter.grad() + gradients[k];
    }
  }

  std::vector<Holder> nets_;
};

}  // namespace paceline::tests
