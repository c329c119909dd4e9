// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Trains the same module in all ways in which gradients can leave, for the arena's tests.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arena_support.h"
#include "ddp_support.h"

namespace paceline::tests {

struct Way {
  LocalLink link = LocalLink::kMemory;
  Gradients gradients = Gradients::kAuto;
};
/// The engine's thread advances buckets over memory links, the hooks do where memory is shared.
constexpr Way kViews{LocalLink::kMemory, Gradients::kBucketView};
constexpr Way kByThread{LocalLink::kMemory, Gradients::kArena};
constexpr Way kByHooks{LocalLink::kShm, Gradients::kArena};

/// Parameters of the given shapes, and whatever forward.
struct ProbeImpl : ::torch::nn::Module {
  using Body = std::function<::torch::Tensor(ProbeImpl&, const ::torch::Tensor&)>;
  ProbeImpl(const std::vector<std::vector<std::int64_t>>& shapes, Body to_run)
      : body(std::move(to_run)) {
    for (const auto& shape : shapes) {
      p.push_back(register_parameter("p" + std::to_string(p.size()), ::torch::empty(shape)));
    }
    fill(*this);
  }
  ::torch::Tensor forward(const ::torch::Tensor& x) { return body(*this, x); }
  std::vector<::torch::Tensor> p;
  Body body;
};

using Ddp = DistributedDataParallel<ProbeImpl>;
using Shapes = std::vector<std::vector<std::int64_t>>;
/// One step of one rank, without the clearing of gradients before it.
using Step = std::function<void(Ddp&, int rank, int step)>;

inline void plain_step(Ddp& ddp, int rank, int step) {
  ddp(batch({kSide, kSide}, rank, step)).square().mean().backward();
}

inline const std::vector<std::int64_t> kSquare{kSide, kSide};

inline ::torch::Tensor two_layers(ProbeImpl& net, const ::torch::Tensor& x) {
  return x.mm(net.p[0]).tanh().mm(net.p[1]);
}

struct Trial {
  Shapes shapes;
  ProbeImpl::Body body;
  Step step = plain_step;
  enum class Clear { kToNone, kToZero, kNever } clear = Clear::kToNone;
  int steps = 3;
  int world = 2;
  std::function<void(ProbeImpl&)> prepare = [](ProbeImpl&) {};
};

struct Outcome {
  std::vector<::torch::Tensor> gradients;  // after each step, the same on all ranks
  GradientStats stats;                     // of rank 0
};

inline Outcome train(const Trial& trial, const std::vector<Way>& way_of_rank) {
  Outcome outcome;
  std::vector<std::vector<::torch::Tensor>> all(static_cast<std::size_t>(trial.world));
  spawn_ranks(trial.world,
              [&](Communicator& comm) {
                const std::size_t place = place_of(comm);
                auto net = std::make_shared<ProbeImpl>(trial.shapes, trial.body);
                trial.prepare(*net);
                // Each gradient leaves by itself, and in its hook where that is the way.
                Ddp ddp(net, comm,
                        {.bucket_cap_bytes = 1,
                         .first_bucket_cap_bytes = 1,
                         .gradients = way_of_rank[place % way_of_rank.size()].gradients});
                for (int step = 0; step < trial.steps; ++step) {
                  if (trial.clear != Trial::Clear::kNever) {
                    net->zero_grad(trial.clear == Trial::Clear::kToNone);
                  }
                  trial.step(ddp, comm.rank(), step);
                  all[place].push_back(flat_gradients(*net));
                }
                if (comm.rank() == 0) outcome.stats = ddp.stats();
              },
              {.link = way_of_rank.front().link});
  for (const auto& gradients : all) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_TRUE(::torch::equal(gradients[i], all[0][i])) << "ranks differ in step " << i;
    }
  }
  outcome.gradients = all[0];
  return outcome;
}

/// Trains with bucket views, by the engine's thread and by hooks, expects equal bits in all steps,
/// and returns what the last two say of themselves.
inline std::pair<GradientStats, GradientStats> same_in_all_ways(const Trial& trial) {
  const Outcome expected = train(trial, {kViews});
  const Outcome by_thread = train(trial, {kByThread});
  const Outcome by_hooks = train(trial, {kByHooks});
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_GT(expected.gradients[i].abs().max().item<double>(), 0.0);
    EXPECT_TRUE(::torch::equal(by_thread.gradients[i], expected.gradients[i])) << "by thread " << i;
    EXPECT_TRUE(::torch::equal(by_hooks.gradients[i], expected.gradients[i])) << "by hooks " << i;
  }
  return {by_thread.stats, by_hooks.stats};
}

}  // namespace paceline::tests
