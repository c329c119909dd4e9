// SPDX-License-Identifier: Apache-2.0
// What can make a gradient's memory somebody else's: each case ends in the bits of bucket views.
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "arena_training.h"
#include "paceline/parallel/grad_hook.h"

namespace paceline {
namespace {

using tests::batch;
using tests::Ddp;
using tests::errors_of;
using tests::expect_all_contain;
using tests::kBlock;
using tests::kByHooks;
using tests::kSide;
using tests::kSquare;
using tests::plain_step;
using tests::ProbeImpl;
using tests::same_in_all_ways;
using tests::train;
using tests::Trial;
using tests::two_layers;
using ::torch::Tensor;
using Clear = Trial::Clear;

// Owners of each gradient's memory: in its hook, then at the end of backward.
std::vector<std::pair<std::size_t, std::size_t>> owners_of(const std::vector<Tensor>& parameters,
                                                           const Tensor& loss) {
  std::vector<std::pair<std::size_t, std::size_t>> owners(parameters.size());
  std::vector<std::shared_ptr<void>> hooks;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    hooks.push_back(on_gradient_ready(parameters[i], [&, i](const Tensor&) {
      owners[i].first = parameters[i].mutable_grad().storage().use_count();
      when_backward_ends(
          [&, i] { owners[i].second = parameters[i].mutable_grad().storage().use_count(); });
    }));
  }
  loss.backward();
  return owners;
}

TEST(DdpArena, stands_on_these_counts_of_owners_in_autograd) {
  using Counts = std::vector<std::pair<std::size_t, std::size_t>>;
  const auto parameter = [] { return ::torch::ones({kSide, kSide}).requires_grad_(); };
  const Tensor x = batch({4, kSide}, 0);
  const Tensor w = parameter();
  const Tensor a = parameter();
  const Tensor b = parameter();
  EXPECT_EQ(owners_of({a}, x.mm(a).sum()), (Counts{{2, 1}}));  // fresh
  a.mutable_grad().zero_();
  EXPECT_EQ(owners_of({a}, x.mm(a).sum()), (Counts{{1, 1}}));  // accumulated
  a.mutable_grad() = Tensor();
  EXPECT_EQ(owners_of({a}, a.sum()), (Counts{{1, 1}}));  // cloned
  a.mutable_grad() = Tensor();
  // The weight of a Linear comes through t(): the tensor that it is a view of has it, too.
  EXPECT_EQ(owners_of({a}, ::torch::linear(x, a, x[0]).sum()), (Counts{{3, 1}}));
  a.mutable_grad() = Tensor();
  const Tensor h = batch({kSide, kSide}, 0).mm(w);
  EXPECT_EQ(owners_of({w, a}, (h + a.view_as(h)).square().sum()), (Counts{{2, 1}, {3, 1}}));
  a.mutable_grad() = Tensor();
  Tensor later = b.view(-1);  // autograd begins with it
  EXPECT_EQ(owners_of({a, b}, (a.view(-1) + std::exchange(later, {})).square().sum()),
            (Counts{{3, 2}, {4, 2}}));
  a.mutable_grad() = b.mutable_grad() = Tensor();
  EXPECT_EQ(owners_of({a, b}, ::torch::cat({a, b}).square().sum()), (Counts{{4, 2}, {4, 2}}));
}

TEST(DdpArena, averages_fresh_gradients_where_they_lie) {
  const auto [by_thread, by_hooks] = same_in_all_ways({{kSquare, kSquare}, two_layers});
  for (const auto& stats : {by_thread, by_hooks}) {
    EXPECT_EQ(stats.steps, 3U);
    EXPECT_EQ(stats.total.in_place, 6 * kBlock);
    EXPECT_EQ(stats.total.copied, 0U);
    EXPECT_EQ(stats.last_step.in_place, 2 * kBlock);
    EXPECT_EQ(stats.last_step.copied, 0U);
    EXPECT_EQ(stats.arena.blocks_in_use, 2U);
    EXPECT_EQ(stats.arena.refused, 0U);
  }
}

TEST(DdpArena, copies_a_view_of_what_earlier_layers_have_yet_to_read) {
  const auto body = [](ProbeImpl& net, const Tensor& x) {
    const Tensor h = x.mm(net.p[0]).tanh();
    return (h + net.p[1].view_as(h)).tanh();  // whose gradient is made in the arena
  };
  const auto [by_thread, by_hooks] = same_in_all_ways({{kSquare, kSquare}, body});
  EXPECT_EQ(by_thread.copies.aliased, 3U);
  EXPECT_EQ(by_hooks.copies.aliased, 3U);
}

TEST(DdpArena, gives_earlier_layers_their_gradient_after_a_view_of_it_was_averaged) {
  const auto train_once = [](Gradients gradients) {
    Tensor result;
    spawn_ranks(2, [&](Communicator& comm) {
      const auto body = [&](ProbeImpl& net, const Tensor& x) {
        const Tensor h = x.mm(net.p[0]).tanh();
        h.register_hook([&](const Tensor&) {
          while (comm.traffic()["ddp 0 bucket 0"].calls == 0) std::this_thread::yield();
        });
        return (h + net.p[1].view_as(h)).tanh();  // whose gradient is made in the arena
      };
      auto net = std::make_shared<ProbeImpl>(tests::Shapes{kSquare, kSquare}, body);
      Ddp ddp(net, comm,
              {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1, .gradients = gradients});
      plain_step(ddp, comm.rank(), 0);
      if (comm.rank() == 0) result = net->p[0].grad().clone();
    });
    return result;
  };
  EXPECT_TRUE(::torch::equal(train_once(Gradients::kArena), train_once(Gradients::kBucketView)));
}

// Whose gradient is a view of a tensor that it keeps.
struct Keeper : ::torch::autograd::Function<Keeper> {
  static Tensor forward(::torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static std::vector<Tensor> backward(::torch::autograd::AutogradContext*,
                                      const std::vector<Tensor>& gradients) {
    kept = gradients[0] + 1;
    as_it_was = kept.clone();
    return {kept.view(kSquare)};
  }
  static thread_local Tensor kept, as_it_was;
};
thread_local Tensor Keeper::kept, Keeper::as_it_was;

TEST(DdpArena, copies_a_view_of_a_tensor_that_somebody_holds) {
  Trial trial{{kSquare, kSquare}, [](ProbeImpl& net, const Tensor& x) {
                return x.mm(net.p[0]) + Keeper::apply(net.p[1]);
              }};
  trial.step = [](Ddp& ddp, int rank, int step) {
    plain_step(ddp, rank, step);
    EXPECT_TRUE(::torch::equal(Keeper::kept, Keeper::as_it_was));
    Keeper::kept = Keeper::as_it_was = Tensor();
  };
  const auto [by_thread, by_hooks] = same_in_all_ways(trial);
  EXPECT_EQ(by_thread.copies.aliased, 3U);
  EXPECT_EQ(by_hooks.copies.aliased, 3U);
}

// The weight of a Linear is one: nobody else has the tensor that its gradient is a view of.
TEST(DdpArena, takes_a_view_in_place_in_its_hook_if_only_autograd_has_what_it_views) {
  const auto body = [](ProbeImpl& net, const Tensor& x) {
    return ::torch::linear(::torch::linear(x, net.p[0]).tanh(), net.p[1]);
  };
  const auto [by_thread, by_hooks] = same_in_all_ways({{kSquare, kSquare}, body});
  EXPECT_EQ(by_thread.total.copied + by_hooks.total.copied, 0U);
}

TEST(DdpArena, copies_gradients_that_share_one_storage) {
  const auto body = [](ProbeImpl& net, const Tensor& x) {
    return x.mm((net.p[0].view(-1) + net.p[1].view(-1)).view({kSide, kSide}));
  };
  Trial trial{{kSquare, kSquare}, body};
  trial.world = 3;  // the mean of two equal means would be the same
  const auto [by_thread, by_hooks] = same_in_all_ways(trial);
  EXPECT_EQ(by_thread.copies.aliased, 3U);  // once the first is copied, the other one is alone
  EXPECT_EQ(by_hooks.copies.aliased, 3U);
}

TEST(DdpArena, copies_slices_of_cat_and_stack_also_where_they_are_unaligned) {
  const auto cat = [](ProbeImpl& net, const Tensor& x) {
    return ::torch::cat({x.mm(net.p[0]), net.p[1]});
  };
  const auto stack = [](ProbeImpl& net, const Tensor& x) {
    return ::torch::stack({net.p[0], net.p[1]}).matmul(x);
  };
  const auto unaligned = [](ProbeImpl& net, const Tensor& x) {
    return ::torch::cat({x[0].slice(0, 0, 1), net.p[0].view(-1), x.mm(net.p[1]).view(-1)});
  };
  for (const ProbeImpl::Body& body :
       {ProbeImpl::Body(cat), ProbeImpl::Body(stack), ProbeImpl::Body(unaligned)}) {
    const auto [by_thread, by_hooks] = same_in_all_ways({{kSquare, kSquare}, body});
    for (const auto& stats : {by_thread, by_hooks}) {
      EXPECT_GE(stats.copies.aliased + stats.copies.outside, 3U);
    }
  }
}

TEST(DdpArena, takes_expanded_and_transposed_gradients_in_place_once_autograd_cloned_them) {
  const auto body = [](ProbeImpl& net, const Tensor& x) {
    return x.mm(net.p[0].t()) + net.p[1].sum() + net.p[2].t();
  };
  const auto [by_thread, by_hooks] = same_in_all_ways({{kSquare, kSquare, kSquare}, body});
  EXPECT_EQ(by_hooks.total.copied, 0U);
  EXPECT_EQ(by_thread.copies.strides + by_hooks.copies.strides, 0U);
}

TEST(DdpArena, takes_channels_last_gradients_in_place) {
  Trial trial{{{64, 64, 3, 3}}, [](ProbeImpl& net, const Tensor& x) {
                return ::torch::conv2d(x.view({4, 64, 8, 8}), net.p[0], {}, 1, 1);
              }};
  trial.prepare = [](ProbeImpl& net) {
    net.p[0].set_data(net.p[0].contiguous(at::MemoryFormat::ChannelsLast));
  };
  trial.step = [](Ddp& ddp, int rank, int step) {
    plain_step(ddp, rank, step);
    EXPECT_EQ(ddp->p[0].grad().strides(), ddp->p[0].strides());
  };
  const auto [by_thread, by_hooks] = same_in_all_ways(trial);
  EXPECT_EQ(by_thread.total.copied + by_hooks.total.copied, 0U);
}

TEST(DdpArena, copies_what_lies_in_another_order_than_its_parameter) {
  Trial trial{{kSquare}, [](ProbeImpl& net, const Tensor& x) { return x.mm(net.p[0]); }};
  trial.clear = Clear::kNever;  // the user's own gradient, transposed, is what backward adds to
  trial.step = [](Ddp& ddp, int rank, int step) {
    ddp->p[0].mutable_grad() = ::torch::zeros({kSide, kSide}).t();
    plain_step(ddp, rank, step);
    EXPECT_EQ(ddp->p[0].grad().strides(), ddp->p[0].strides());
  };
  EXPECT_EQ(same_in_all_ways(trial).second.copies.strides, 3U);
}

TEST(DdpArena, refuses_sparse_gradients) {
  const auto texts = errors_of<CommError>(2, [](Communicator& comm) {
    auto net = std::make_shared<ProbeImpl>(tests::Shapes{kSquare}, [](ProbeImpl& p, const Tensor&) {
      return ::torch::embedding(p.p[0], ::torch::zeros({2}, ::torch::kLong), -1, false, true);
    });
    Ddp ddp(net, comm, {.gradients = Gradients::kArena});
    plain_step(ddp, comm.rank(), 0);
  });
  expect_all_contain(texts, "the gradient of p0 is sparse");
}

TEST(DdpArena, copies_a_gradient_that_is_part_of_a_graph) {
  Trial trial{{kSquare, kSquare}, two_layers};
  trial.step = [](Ddp& ddp, int rank, int step) {
    const Tensor loss = ddp(batch({kSide, kSide}, rank, step)).square().mean();
    loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    EXPECT_FALSE(ddp->p[0].grad().requires_grad());
  };
  EXPECT_EQ(same_in_all_ways(trial).second.copies.aliased, 6U);
}

TEST(DdpArena, averages_a_gradient_of_two_parameters_once_for_each) {
  Trial trial{{kSquare, kSquare}, two_layers};
  trial.clear = Clear::kNever;
  trial.step = [](Ddp& ddp, int rank, int step) {
    ddp->p[0].mutable_grad() = ::torch::zeros({kSide, kSide});
    ddp->p[1].mutable_grad() = ddp->p[0].mutable_grad();
    plain_step(ddp, rank, step);
  };
  const auto by_hooks = train(trial, {kByHooks});
  const auto expected = train(trial, {{LocalLink::kShm, Gradients::kBucketView}});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(::torch::equal(by_hooks.gradients[i], expected.gradients[i]));
  }
  EXPECT_EQ(by_hooks.stats.copies.aliased, 3U);
}

}  // namespace
}  // namespace paceline
