// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the DDP tests share: flat views of a model, and the errors of all ranks side by side.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "close.h"
#include "models.h"
#include "paceline/base/error.h"
#include "paceline/comm/init.h"
#include "paceline/parallel/distributed_data_parallel.h"

namespace paceline::tests {

inline std::size_t place_of(const Communicator& comm) {
  return static_cast<std::size_t>(comm.rank());
}

inline ::torch::Tensor flat_gradients(const ::torch::nn::Module& net) {
  std::vector<::torch::Tensor> parts;
  for (const auto& parameter : net.parameters()) {
    parts.push_back(parameter.grad().to(::torch::kDouble).reshape(-1));
  }
  return ::torch::cat(parts);
}

inline ::torch::Tensor flat_parameters(const ::torch::nn::Module& net) {
  std::vector<::torch::Tensor> parts;
  for (const auto& parameter : net.parameters()) parts.push_back(parameter.detach().reshape(-1));
  return ::torch::cat(parts).clone();
}

// What each rank throws; "" where nothing was thrown.
template <typename Error>
std::vector<std::string> errors_of(int world,
                                   const std::function<void(Communicator&)>& body,
                                   const LocalOptions& options = {}) {
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  const auto rank = [&](Communicator& comm) {
    try {
      body(comm);
    } catch (const Error& error) {
      texts[place_of(comm)] = error.what();
    }
    // No rank leaves before all have their error: a closed link is not what is tested here.
    try {
      comm.barrier();
    } catch (const CommError&) {  // poisoned
    }
  };
  spawn_ranks(world, rank, options);
  return texts;
}

inline void expect_all_contain(const std::vector<std::string>& texts, const std::string& part) {
  for (const auto& text : texts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
  }
}

}  // namespace paceline::tests
