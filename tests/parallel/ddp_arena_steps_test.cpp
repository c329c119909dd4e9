// SPDX-License-Identifier: Apache-2.0
// The blocks of the arena from step to step: kept, used again, given up, and used up.
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "arena_training.h"
#include "paceline/parallel/bucket.h"

namespace paceline {
namespace {

using tests::Ddp;
using tests::expect_all_contain;
using tests::kBlock;
using tests::kByHooks;
using tests::kByThread;
using tests::kSide;
using tests::kSquare;
using tests::kViews;
using tests::place_of;
using tests::plain_step;
using tests::ProbeImpl;
using tests::same_in_all_ways;
using tests::train;
using tests::Trial;
using tests::two_layers;
using ::torch::Tensor;
using Clear = Trial::Clear;

TEST(DdpArena, keeps_the_block_with_zero_grad_to_zero) {
  std::vector<const void*> places(2);
  Trial trial{{kSquare, kSquare}, two_layers};
  trial.clear = Clear::kToZero;
  trial.step = [&](Ddp& ddp, int rank, int step) {
    plain_step(ddp, rank, step);
    const void* const place = ddp->p[0].grad().const_data_ptr();
    if (step > 0) {
      EXPECT_EQ(place, places[static_cast<std::size_t>(rank)]);
    }
    places[static_cast<std::size_t>(rank)] = place;
  };
  const auto [by_thread, by_hooks] = same_in_all_ways(trial);
  EXPECT_EQ(by_thread.total.copied + by_hooks.total.copied, 0U);
}

TEST(DdpArena, leaves_a_kept_gradient_as_it_was) {
  std::vector<Tensor> kept(2);
  std::vector<Tensor> copies(2);
  Trial trial{{kSquare, kSquare}, two_layers};
  trial.step = [&](Ddp& ddp, int rank, int step) {
    plain_step(ddp, rank, step);
    const auto place = static_cast<std::size_t>(rank);
    if (step == 0) copies[place] = (kept[place] = ddp->p[0].grad()).clone();
    if (step > 0) {
      EXPECT_EQ(ddp.stats().arena.blocks_in_use, 3U);
    }
    EXPECT_TRUE(::torch::equal(kept[place], copies[place]));
  };
  for (const auto way : {kByThread, kByHooks})
    EXPECT_EQ(train(trial, {way}).stats.total.copied, 0U);
}

TEST(DdpArena, takes_a_gradient_that_resize_moved_out) {
  Trial trial{{kSquare, kSquare}, two_layers};
  trial.clear = Clear::kToZero;
  trial.step = [](Ddp& ddp, int rank, int step) {
    if (step == 1) {
      Tensor gradient = ddp->p[0].grad();
      gradient.resize_({2 * kSide, kSide}).resize_({kSide, kSide});
    }
    plain_step(ddp, rank, step);
  };
  // Moved into a block by its copy in that step, and there in the next.
  EXPECT_EQ(train(trial, {kByHooks}).stats.copies.outside, 1U);
  const auto expected = train({{kSquare, kSquare}, two_layers}, {kViews});
  EXPECT_TRUE(::torch::equal(train(trial, {kByHooks}).gradients[2], expected.gradients[2]));
}

TEST(DdpArena, accumulates_backwards_of_one_step_in_place) {
  Trial trial{{kSquare, kSquare}, two_layers};
  trial.step = [](Ddp& ddp, int rank, int step) {
    ddp.expect_backwards(3);
    for (int part = 0; part < 3; ++part) plain_step(ddp, rank, 3 * step + part);
  };
  const auto [by_thread, by_hooks] = same_in_all_ways(trial);
  EXPECT_EQ(by_thread.total.copied + by_hooks.total.copied, 0U);
  EXPECT_EQ(by_hooks.steps, 3U);
}

TEST(DdpArena, is_right_with_a_backward_within_another) {
  const auto body = [](ProbeImpl& net, const Tensor& x) {
    const Tensor h = x.mm(net.p[0]).tanh();
    h.register_hook([&net, x](const Tensor&) {
      const ::torch::AutoGradMode grad_mode(true);
      x.mm(net.p[1]).square().mean().backward();
    });
    return h.mm(net.p[2]);
  };
  const auto [by_thread, by_hooks] = same_in_all_ways({{kSquare, kSquare, kSquare}, body});
  EXPECT_EQ(by_hooks.total.copied, 0U);
  EXPECT_EQ(by_thread.steps, 3U);
}

TEST(DdpArena, is_right_with_backwards_on_several_threads) {
  Trial trial{{kSquare, kSquare}, two_layers};
  trial.step = [](Ddp& ddp, int rank, int step) {
    ddp.expect_backwards(2);
    std::jthread([&] { plain_step(ddp, rank, 2 * step); }).join();
    plain_step(ddp, rank, 2 * step + 1);
  };
  const auto [by_thread, by_hooks] = same_in_all_ways(trial);
  EXPECT_EQ(by_thread.total.copied + by_hooks.total.copied, 0U);
}

TEST(DdpArena, uses_blocks_again_though_activations_have_the_size_of_parameters) {
  std::vector<std::vector<std::uint64_t>> blocks(2);
  Trial trial{{kSquare, kSquare, kSquare}, [](ProbeImpl& net, const Tensor& x) {
                Tensor y = x;
                for (int i = 0; i < 3; ++i) {
                  for (const auto& w : net.p) y = ::torch::relu(y.mm(w)) + y;
                }
                return y;
              }};
  trial.steps = 6;
  trial.step = [&](Ddp& ddp, int rank, int step) {
    plain_step(ddp, rank, step);
    blocks[static_cast<std::size_t>(rank)].push_back(ddp.stats().arena.blocks);
  };
  EXPECT_EQ(same_in_all_ways(trial).second.total.copied, 0U);
  for (const auto& counts : blocks) EXPECT_EQ(counts[5], counts[1]);
}

TEST(DdpArena, lets_ranks_do_it_differently) {
  const Trial trial{{kSquare, {kSide}, kSquare},
                    [](ProbeImpl& net, const Tensor& x) {
                      return (x.mm(net.p[0]) + net.p[1]).tanh().mm(net.p[2]);
                    },
                    plain_step,
                    Clear::kToNone,
                    3,
                    3};
  const auto expected = train(trial, {kViews});
  for (const auto link : {LocalLink::kMemory, LocalLink::kShm}) {
    const auto mixed = train(trial, {{link, Gradients::kArena}, {link, Gradients::kBucketView}});
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(::torch::equal(mixed.gradients[i], expected.gradients[i]));
    }
  }
}

TEST(DdpArena, names_a_parameter_whose_hook_never_fires) {
  for (const auto link : {LocalLink::kMemory, LocalLink::kShm}) {
    std::vector<std::string> texts(2);
    spawn_ranks(2,
                [&](Communicator& comm) {
                  auto net = std::make_shared<ProbeImpl>(
                      tests::Shapes{kSquare, kSquare},
                      [&](ProbeImpl& p, const Tensor& x) { return x.mm(p.p[0]); });
                  try {
                    Ddp ddp(net, comm, {.gradients = Gradients::kArena});
                    plain_step(ddp, comm.rank(), 0);
                  } catch (const CommError& error) {
                    texts[place_of(comm)] = error.what();
                  }
                },
                {.link = link});
    expect_all_contain(texts, "without a gradient for p1");
  }
}

TEST(DdpArena, hands_out_no_block_again_after_a_failed_step) {
  for (const auto link : {LocalLink::kMemory, LocalLink::kShm}) {
    std::latch first_step_done(2);
    spawn_ranks(
        2,
        [&](Communicator& comm) {
          auto net = std::make_shared<ProbeImpl>(tests::Shapes{kSquare, kSquare}, two_layers);
          Ddp ddp(net, comm, {.gradients = Gradients::kArena});
          plain_step(ddp, comm.rank(), 0);
          first_step_done.arrive_and_wait();
          net->zero_grad();
          net->p[0].register_hook([&](const Tensor&) { comm.abort("for the test"); });
          EXPECT_THROW(plain_step(ddp, comm.rank(), 1), CommError);
          net->zero_grad();
          const auto blocks = ddp.stats().arena.blocks;
          EXPECT_GT(blocks, 0U);
          EXPECT_THROW(plain_step(ddp, comm.rank(), 2), CommError);
          EXPECT_EQ(ddp.stats().arena.blocks, blocks);
          // Whatever this backward left lies elsewhere.
          EXPECT_LE(ddp.stats().arena.blocks_in_use, 2U);
          for (const auto& parameter : net->p) {
            if (!parameter.grad().defined()) continue;
            EXPECT_EQ(parameter.grad().storage().data_ptr().get_deleter(),
                      tests::CountingAllocator().raw_deleter());
          }
        },
        {.link = link});
  }
}

TEST(DdpArena, keeps_a_block_until_every_rank_is_done_with_it) {
  std::latch checked(1);
  spawn_ranks(2, [&](Communicator& comm) {
    const auto parameters = tests::one_parameter();
    const auto engine = comm.share_engine();
    GradientArena arena(engine, parameters);
    Bucket bucket("bucket", Dtype::kF32, {0}, parameters, *engine, &arena);
    Tensor gradient = arena.make_like(parameters[0].tensor).fill_(comm.rank());
    EXPECT_EQ(bucket.take(0, gradient), CopyReason::kNone);
    if (comm.rank() == 1) checked.wait();
    bucket.start(*engine, kDefaultTimeout, Progress::kThread);
    if (comm.rank() == 0) {
      gradient.reset();  // as a user's hook may do while backward runs
      EXPECT_EQ(arena.figures().in_use, 1U);
      checked.count_down();
    }
    bucket.wait();
    EXPECT_EQ(arena.figures().in_use, comm.rank() == 0 ? 0U : 1U);
    if (comm.rank() == 1) {
      EXPECT_TRUE((gradient == 0.5).all().item<bool>());
    }
  });
}

TEST(DdpArena, is_right_when_it_is_exhausted) {
  spawn_ranks(2, [&](Communicator& comm) {
    const std::vector<NamedTensor> parameters{{"a", ::torch::zeros({kSide, kSide})},
                                              {"b", ::torch::zeros({kSide, kSide})},
                                              {"c", ::torch::zeros({kSide, kSide})}};
    GradientArena arena(std::make_shared<tests::LimitedEngine>(kBlock), parameters);
    Bucket bucket("bucket", Dtype::kF32, {0, 1, 2}, parameters, comm.engine(), &arena);
    std::vector<Tensor> gradients;
    for (int i = 0; i < 3; ++i)
      gradients.push_back(::torch::full({kSide, kSide}, 1.0 * (comm.rank() + i)));
    const Tensor alias = gradients[2].view(-1);
    const void* const place = gradients[1].const_data_ptr();
    EXPECT_EQ(bucket.take(0, gradients[0]), CopyReason::kOutside);
    EXPECT_EQ(bucket.take(1, gradients[1]), CopyReason::kExhausted);
    EXPECT_EQ(bucket.take(2, gradients[2]), CopyReason::kExhausted);
    EXPECT_TRUE(arena.holds(gradients[0]));
    EXPECT_EQ(gradients[1].const_data_ptr(), place);
    EXPECT_FALSE(gradients[2].is_alias_of(alias));
    bucket.start(comm.engine(), kDefaultTimeout, Progress::kThread);
    bucket.wait();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE((gradients[static_cast<std::size_t>(i)] == 0.5 + i).all().item<bool>());
    }
    EXPECT_TRUE((alias == comm.rank() + 2).all().item<bool>());
  });
}

}  // namespace
}  // namespace paceline
