// SPDX-License-Identifier: Apache-2.0
// Shared optimizers: archives of their state and of their module, good and bad.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "shared_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::expect_all_contain;
using tests::fill;
using tests::flat_parameters;
using tests::Mlp;
using tests::place_of;
using tests::Saved;
using tests::set_gradients;
using tests::shared_errors;
using tests::with_shared_memory;
using ::torch::Tensor;
using ::torch::serialize::InputArchive;
using ::torch::serialize::OutputArchive;

InputArchive read_back(OutputArchive& out) {
  std::stringstream stream;
  out.save_to(stream);
  InputArchive in;
  in.load_from(stream);
  return in;
}

// An archive of SharedSGD with momentum for an Mlp, right but for what is given.
struct Sample {
  std::string optimizer = "SharedSGD";
  std::int64_t steps = 7;
  std::int64_t groups = 1;
  double lr = 0.25;
  double weight_decay = 0;
  std::string without = {};              // a parameter
  at::ScalarType type = at::kFloat;      // of all states
  std::vector<std::int64_t> sizes = {};  // of all states, if given
  [[nodiscard]] InputArchive archive() const {
    OutputArchive out;
    out.write("optimizer", c10::IValue(optimizer));
    out.write("steps", c10::IValue(steps));
    out.write("groups", c10::IValue(groups));
    out.write("lr/0", c10::IValue(lr));
    out.write("weight_decay/0", c10::IValue(weight_decay));
    Mlp net;
    for (const auto& item : net->named_parameters()) {
      if (item.key() == without) continue;
      const auto like = sizes.empty() ? item.value().sizes() : at::IntArrayRef(sizes);
      out.write("momentum_buffer." + item.key(), ::torch::ones(like, type), /*is_buffer=*/true);
    }
    return read_back(out);
  }
};

// Every rank gets the same error, and its state, steps and rates are what they were.
void expect_refused(const std::string& text, const std::function<InputArchive(int rank)>& archive) {
  const auto texts = shared_errors<UsageError>(2, [&](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm, {.lr = 0.5, .momentum = 0.9});
    set_gradients(*net, comm.rank(), 0);
    shared.step();
    Saved before(shared);
    InputArchive bad = archive(comm.rank());
    std::string caught;
    try {
      shared.load(bad);
    } catch (const UsageError& error) {
      caught = error.what();
    }
    EXPECT_EQ(shared.steps(), 1) << text;
    EXPECT_EQ(shared.lr(), 0.5) << text;
    Saved after(shared);
    for (const auto& item : net->named_parameters()) {
      const std::string key = "momentum_buffer." + item.key();
      EXPECT_TRUE(::torch::equal(before(key), after(key))) << text;
    }
    shared.step();  // and it goes on
    throw UsageError(caught);
  });
  expect_all_contain(texts, text);
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(SharedCheckpoint, saves_its_state_whole_and_loads_it_in_another_world) {
  std::stringstream archive, expected_archive;
  const SharedSgdOptions options{.lr = 0.1, .momentum = 0.9};
  std::vector<Tensor> after(2);
  Mlp start;
  const auto train = [&](SharedSGD& shared, Mlp& net, int step) {
    shared.zero_grad();
    net(batch({4, 12}, 0, step)).square().mean().backward();  // the same on all ranks
    shared.step();
  };
  with_shared_memory(2, [&](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm, options);
    for (int step = 0; step < 3; ++step) train(shared, net, step);
    shared.set_lr(0.05);
    ::torch::serialize::OutputArchive out;
    shared.save(out);
    if (comm.rank() == 0) out.save_to(archive);
    const ::torch::NoGradGuard no_grad;
    if (comm.rank() == 0) {
      for (const auto& item : net->named_parameters()) {
        start->named_parameters()[item.key()].copy_(item.value());
      }
    }
    comm.barrier();
    const at::AutoGradMode with_grad(true);
    train(shared, net, 3);
    after[place_of(comm)] = flat_parameters(*net);
  });
  const std::string bytes = archive.str();
  with_shared_memory(3, [&](Communicator& comm) {
    Mlp net;
    {
      const ::torch::NoGradGuard no_grad;
      for (const auto& item : start->named_parameters()) {
        net->named_parameters()[item.key()].copy_(item.value());
      }
    }
    SharedSGD shared(net, comm, options);
    std::stringstream stream(bytes);
    ::torch::serialize::InputArchive in;
    in.load_from(stream);
    shared.load(in);
    EXPECT_EQ(shared.steps(), 3);
    EXPECT_EQ(shared.lr(), 0.05);
    train(shared, net, 3);
    EXPECT_TRUE(::torch::allclose(flat_parameters(*net), after[0], 1e-6, 1e-7));
  });
  const auto texts = shared_errors<UsageError>(2, [&](Communicator& comm) {
    Mlp net;
    SharedAdam adam(net, comm);
    std::stringstream stream(bytes);
    ::torch::serialize::InputArchive in;
    in.load_from(stream);
    adam.load(in);
  });
  expect_all_contain(texts, "it was saved by SharedSGD");
}

TEST(SharedCheckpoint, loads_a_sample_that_is_right) {
  with_shared_memory(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm, {.lr = 0.5, .momentum = 0.9});
    InputArchive good = Sample{}.archive();
    shared.load(good);
    EXPECT_EQ(shared.steps(), 7);
    EXPECT_EQ(shared.lr(), 0.25);
    EXPECT_TRUE((Saved(shared)("momentum_buffer.fc2.weight") == 1).all().item<bool>());
  });
}

TEST(SharedCheckpoint, refuses_bad_archives_on_all_ranks_and_changes_nothing) {
  const auto both = [](const Sample& sample) { return [sample](int) { return sample.archive(); }; };
  expect_refused("cannot be loaded", [](int) { return InputArchive(); });
  expect_refused("cannot be loaded", [](int) {
    OutputArchive out;
    Mlp()->save(out);
    return read_back(out);
  });
  expect_refused("it was saved by SharedAdam", both({.optimizer = "SharedAdam"}));
  expect_refused("another number of groups", both({.groups = 2}));
  expect_refused("fc2.weight", both({.without = "fc2.weight"}));
  expect_refused("fc1.weight is of another shape or type", both({.type = at::kDouble}));
  expect_refused("fc1.weight is of another shape or type", both({.sizes = {3}}));
  expect_refused("the number of steps is -3", both({.steps = -3}));
  expect_refused("the number of steps is 9223372036854775807",
                 both({.steps = std::numeric_limits<std::int64_t>::max()}));
  expect_refused("lr is -1, not at least 0", both({.lr = -1}));
  expect_refused("lr is nan", both({.lr = std::nan("")}));
  expect_refused("weight_decay is -2", both({.weight_decay = -2}));
}

TEST(SharedCheckpoint, refuses_archives_that_differ_or_are_bad_on_one_rank) {
  expect_refused("the archives differ: steps is 7 on rank 0, but 8 on rank 1",
                 [](int rank) { return Sample{.steps = 7 + rank}.archive(); });
  expect_refused("the archives differ: a fault is",
                 [](int rank) { return Sample{.without = rank == 1 ? "fc3.bias" : ""}.archive(); });
}

TEST(SharedCheckpoint, makes_rates_equal_that_one_rank_had_changed) {
  with_shared_memory(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm, {.lr = 0.5, .momentum = 0.9});
    if (comm.rank() == 1) shared.set_lr(0.1);
    InputArchive good = Sample{}.archive();
    shared.load(good);
    set_gradients(*net, comm.rank(), 0);
    EXPECT_NO_THROW(shared.step());
  });
}

std::string saved_module() {
  Mlp net;
  fill(*net, 3);
  std::stringstream stream;
  ::torch::save(net, stream);
  return stream.str();
}

void load_module(Mlp& net, const std::string& bytes) {
  std::stringstream stream(bytes);
  ::torch::load(net, stream);
}

TEST(SharedCheckpoint, of_the_module_is_loaded_in_write_once_on_rank_0_for_all) {
  const std::string bytes = saved_module();
  for (const int world : {1, 3}) {
    with_shared_memory(world, [&](Communicator& comm) {
      Mlp expected, net;
      fill(*expected, 3);
      SharedSGD shared(net, comm, {.lr = 0.5});
      shared.write_once([&] { load_module(net, bytes); });
      EXPECT_TRUE(::torch::equal(flat_parameters(*net), flat_parameters(*expected)));
      comm.barrier();
      set_gradients(*net, 0, 0);
      shared.step();  // no complaint, and in the shared memory still
      set_gradients(*expected, 0, 0);
      const Tensor start = flat_parameters(*expected);
      EXPECT_TRUE(tests::close(flat_parameters(*net),
                               start - 0.5 * tests::flat_gradients(*expected).to(at::kFloat)));
      shared.write_once([&] { net->fc1->bias.data().fill_(9); });
      EXPECT_TRUE((net->fc1->bias == 9).all().item<bool>());
    });
  }
}

TEST(SharedCheckpoint, of_the_module_is_refused_outside_of_write_once_and_mended_in_it) {
  const std::string bytes = saved_module();
  const auto texts = shared_errors<UsageError>(2, [&](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm, {.lr = 0.5});
    load_module(net, bytes);
    set_gradients(*net, comm.rank(), 0);
    std::string caught;
    try {
      shared.step();
    } catch (const UsageError& error) {
      caught = error.what();
    }
    shared.write_once([] {});  // rank 0's are taken as they are
    Mlp expected;
    fill(*expected, 3);
    EXPECT_TRUE(::torch::equal(flat_parameters(*net), flat_parameters(*expected)));
    comm.barrier();
    EXPECT_NO_THROW(shared.step());
    throw UsageError(caught);
  });
  expect_all_contain(texts, "SharedSGD: changed outside of step(): fc1.weight, fc1.bias,");
}

TEST(SharedCheckpoint, of_another_shape_is_refused_by_write_once_which_keeps_the_values) {
  const auto texts = shared_errors<UsageError>(2, [&](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm);
    const Tensor before = flat_parameters(*net);
    std::string caught;
    try {
      shared.write_once([&] {
        net->fc2->weight.set_data(::torch::zeros({2, 2}));
        net->fc3->bias.set_data(net->fc3->bias.data().to(at::kDouble));
      });
    } catch (const UsageError& error) {
      caught = error.what();
    }
    EXPECT_TRUE(::torch::equal(flat_parameters(*net), before));
    comm.barrier();
    set_gradients(*net, comm.rank(), 0);
    EXPECT_NO_THROW(shared.step());
    throw UsageError(caught);
  });
  EXPECT_EQ(texts[0],
            "SharedSGD: write_once: the type or shape changed of fc2.weight, fc3.bias; their "
            "values stay as they were");
  EXPECT_EQ(texts[1], "SharedSGD: write_once: it failed on rank 0");
}

}  // namespace
}  // namespace paceline
