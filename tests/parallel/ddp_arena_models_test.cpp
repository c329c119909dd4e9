// SPDX-License-Identifier: Apache-2.0
// Whole models: the bits of bucket views, 99 % of the bytes in place, and nothing on one rank.
#include "arena_training.h"
#include "paceline/parallel/reducer.h"

namespace paceline {
namespace {

namespace nn = ::torch::nn;
using tests::flat_gradients;
using tests::flat_parameters;
using tests::kByHooks;
using tests::kByThread;
using tests::kSide;
using tests::kViews;
using tests::Way;
using ::torch::Tensor;

struct WideMlpImpl : nn::Module {
  nn::Sequential layers = register_module("layers",
                                          nn::Sequential(nn::Linear(512, 512),
                                                         nn::ReLU(),
                                                         nn::Linear(512, 512),
                                                         nn::ReLU(),
                                                         nn::Linear(512, 512),
                                                         nn::ReLU(),
                                                         nn::Linear(512, 10)));
  Tensor forward(const Tensor& x) { return layers->forward(x); }
  static Tensor input(int rank, int step) { return tests::batch({8, 512}, rank, step); }
};

struct DigitsCnnImpl : nn::Module {
  nn::Conv2d conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 32, 3)));
  nn::Conv2d conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(32, 64, 3)));
  nn::Linear fc1 = register_module("fc1", nn::Linear(64 * 6 * 6, 128));
  nn::Linear fc2 = register_module("fc2", nn::Linear(128, 10));
  Tensor forward(Tensor x) {
    x = ::torch::max_pool2d(::torch::relu(conv2(::torch::relu(conv1(x)))), 2);
    return fc2(::torch::relu(fc1(x.flatten(1))));
  }
  static Tensor input(int rank, int step) { return tests::batch({4, 1, 16, 16}, rank, step); }
};

// One pre-norm block of the width of the small GPT.
struct SmallGptImpl : nn::Module {
  static constexpr std::int64_t kWidth = 256, kContext = 64, kHeads = 4;
  nn::Embedding tokens = register_module("tokens", nn::Embedding(128, kWidth));
  Tensor places = register_parameter("places", ::torch::zeros({kContext, kWidth}));
  nn::LayerNorm norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear qkv = register_module("qkv", nn::Linear(kWidth, 3 * kWidth));
  nn::Linear join = register_module("join", nn::Linear(kWidth, kWidth));
  nn::LayerNorm norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear up = register_module("up", nn::Linear(kWidth, 4 * kWidth));
  nn::Linear down = register_module("down", nn::Linear(4 * kWidth, kWidth));
  nn::Linear head = register_module("head", nn::Linear(kWidth, 10));

  Tensor attend(const Tensor& x) {
    const auto parts =
        qkv(x).view({-1, kContext, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const Tensor scores = parts[0].matmul(parts[1].transpose(-1, -2)) / 8.0;
    const Tensor mixed = scores.softmax(-1).matmul(parts[2]).transpose(1, 2);
    return join(mixed.reshape({-1, kContext, kWidth}));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = tokens(x) + places;
    y = y + attend(norm1(y));
    y = y + down(::torch::gelu(up(norm2(y))));
    return head(y.mean(1));
  }
  static Tensor input(int rank, int step) {
    return (::torch::arange(2 * kContext) * (3 + rank) + step).remainder(128).view({2, kContext});
  }
};

struct Result {
  std::vector<Tensor> bits;  // gradients after each step, then parameters
  GradientStats stats;
};

template <typename Net>
Result train(int world, Way way, int steps) {
  Result result;
  spawn_ranks(world,
              [&](Communicator& comm) {
                auto net = std::make_shared<Net>();
                for (auto& p : net->parameters()) p.data().copy_(tests::batch(p.sizes(), 0) * 0.05);
                DistributedDataParallel ddp(
                    net, comm, {.bucket_cap_bytes = 1 << 20, .gradients = way.gradients});
                ::torch::optim::SGD sgd(ddp.parameters(),
                                        ::torch::optim::SGDOptions(0.1).momentum(0.9));
                std::vector<Tensor> bits;
                for (int step = 0; step < steps; ++step) {
                  sgd.zero_grad();
                  ddp(Net::input(comm.rank(), step)).square().mean().backward();
                  bits.push_back(flat_gradients(*net));
                  sgd.step();
                }
                bits.push_back(flat_parameters(*net));
                if (comm.rank() == 0) result = {std::move(bits), ddp.stats()};
              },
              {.link = way.link});
  return result;
}

void expect_equal_bits(const Result& result, const Result& expected) {
  ASSERT_EQ(result.bits.size(), expected.bits.size());
  for (std::size_t i = 0; i < result.bits.size(); ++i) {
    EXPECT_TRUE(::torch::equal(result.bits[i], expected.bits[i])) << i;
  }
}

double share_in_place(const GradientStats& stats) {
  const auto in_place = static_cast<double>(stats.total.in_place);
  return in_place / (in_place + static_cast<double>(stats.total.copied));
}

template <typename Net>
void expect_bits_of_bucket_views_and_99_percent_in_place() {
  for (const int world : {2, 3}) {
    const auto expected = train<Net>(world, kViews, 3);
    if (world == 2) expect_equal_bits(train<Net>(world, kByThread, 3), expected);
    const auto by_hooks = train<Net>(world, kByHooks, 3);
    expect_equal_bits(by_hooks, expected);
    EXPECT_GE(share_in_place(by_hooks.stats), 0.99);
    EXPECT_EQ(by_hooks.stats.copies.outside + by_hooks.stats.copies.aliased, 0U);
    ::testing::Test::RecordProperty("share", std::to_string(share_in_place(by_hooks.stats)));
  }
}

TEST(DdpArenaModels, mlp_has_the_bits_of_bucket_views_and_99_percent_in_place) {
  expect_bits_of_bucket_views_and_99_percent_in_place<WideMlpImpl>();
}
TEST(DdpArenaModels, cnn_has_the_bits_of_bucket_views_and_99_percent_in_place) {
  expect_bits_of_bucket_views_and_99_percent_in_place<DigitsCnnImpl>();
}
TEST(DdpArenaModels, gpt_has_the_bits_of_bucket_views_and_99_percent_in_place) {
  expect_bits_of_bucket_views_and_99_percent_in_place<SmallGptImpl>();
}

TEST(DdpArenaModels, have_the_same_bits_in_20_repeats) {
  const tests::Trial trial{{{kSide, kSide}, {kSide}, {kSide, kSide}},
                           [](tests::ProbeImpl& net, const Tensor& x) {
                             return (x.mm(net.p[0]) + net.p[1]).tanh().mm(net.p[2]);
                           }};
  const auto expected = tests::train(trial, {kViews});
  for (int i = 0; i < 20; ++i) {
    const auto repeat = tests::train(trial, {kByHooks});
    for (std::size_t step = 0; step < 3; ++step) {
      EXPECT_TRUE(::torch::equal(repeat.gradients[step], expected.gradients[step]));
    }
  }
}

TEST(DdpArenaModels, choose_the_arena_where_ranks_share_memory) {
  const auto shared = train<DigitsCnnImpl>(2, {LocalLink::kShm, Gradients::kAuto}, 1).stats;
  EXPECT_GT(shared.arena.blocks, 0U);
  EXPECT_EQ(shared.copies.bucket_view, 0U);
  const auto apart = train<DigitsCnnImpl>(2, {LocalLink::kMemory, Gradients::kAuto}, 1).stats;
  EXPECT_EQ(apart.arena.blocks, 0U);
  EXPECT_EQ(apart.total.in_place, 0U);
  EXPECT_EQ(apart.copies.bucket_view, 8U);
}

TEST(DdpArenaModels, leave_gradients_alone_on_one_rank) {
  spawn_ranks(1, [](Communicator& comm) {
    auto net = std::make_shared<DigitsCnnImpl>();
    DistributedDataParallel ddp(net, comm, {.gradients = Gradients::kArena});
    ddp(DigitsCnnImpl::input(0, 0)).square().mean().backward();
    const auto parameters = net->parameters();
    for (const auto& parameter : parameters) {
      EXPECT_EQ(parameter.grad().storage().use_count(), 1U);
      EXPECT_EQ(parameter.grad().storage().nbytes(), parameter.nbytes());
    }
    EXPECT_EQ(ddp.stats().total.copied, 0U);
    EXPECT_EQ(ddp.stats().arena.blocks, 0U);
  });
}

TEST(DdpArenaModels, have_the_same_bits_whoever_advances_buckets) {
  std::vector<Tensor> results;
  for (const Driver driver : {Driver::kByThread, Driver::kByHooks}) {
    for (const auto link : {LocalLink::kMemory, LocalLink::kShm}) {
      spawn_ranks(
          2,
          [&](Communicator& comm) {
            nn::Linear net(256, 256);
            tests::fill(*net);
            const auto reducer =
                Reducer::make("test", {{"weight", net->weight}, {"bias", net->bias}}, comm,
                              {.caps = {1, 1}, .gradients = Gradients::kArena, .driver = driver});
            for (int step = 0; step < 2; ++step) {
              net->zero_grad();
              const Tensor loss = net(tests::batch({4, 256}, comm.rank(), step)).square().mean();
              reducer->watch(loss);
              loss.backward();
            }
            const auto in_backward = reducer->statistics().buckets_started_in_backward;
            EXPECT_EQ(in_backward, 4U);
            if (comm.rank() == 0) results.push_back(flat_gradients(*net));
          },
          {.link = link});
    }
  }
  for (const auto& result : results) EXPECT_TRUE(::torch::equal(result, results[0]));
}

}  // namespace
}  // namespace paceline
