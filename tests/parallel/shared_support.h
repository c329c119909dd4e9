// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the tests of shared optimizers have in common.

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "ddp_support.h"
#include "paceline/parallel/shared_optimizer.h"

namespace paceline::tests {

inline void with_shared_memory(int world, const std::function<void(Communicator&)>& body) {
  spawn_ranks(world, body, {.link = LocalLink::kShm, .window_bytes = 128 << 20});
}

// What each rank throws; "" where nothing was thrown.
template <typename Error>
std::vector<std::string> shared_errors(int world, const std::function<void(Communicator&)>& body) {
  return errors_of<Error>(world, body, {.link = LocalLink::kShm, .window_bytes = 128 << 20});
}

// Reads the whole state back from what save() writes.
class Saved {
 public:
  explicit Saved(const SharedOptimizer& optimizer) {
    ::torch::serialize::OutputArchive out;
    optimizer.save(out);
    out.save_to(stream_);
    archive.load_from(stream_);
  }
  ::torch::Tensor operator()(const std::string& key) {
    ::torch::Tensor value;
    archive.read(key, value, /*is_buffer=*/true);
    return value;
  }
  ::torch::serialize::InputArchive archive;

 private:
  std::stringstream stream_;
};

inline void set_gradients(::torch::nn::Module& net, int rank, int step) {
  for (const auto& parameter : net.parameters()) {
    parameter.mutable_grad() =
        (batch(parameter.sizes(), rank, step) * 0.1).to(parameter.scalar_type());
  }
}

}  // namespace paceline::tests
