// SPDX-License-Identifier: Apache-2.0
// Shared optimizers: what fails on one rank, what the others hear of it, and where memory is short.
#include <chrono>
#include <cstddef>
#include <exception>
#include <latch>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "shared_support.h"

namespace paceline {
namespace {

using tests::Cnn;
using tests::expect_all_contain;
using tests::fill;
using tests::flat_parameters;
using tests::Mlp;
using tests::place_of;
using tests::set_gradients;
using tests::shared_errors;
using tests::Square;
using tests::SquareImpl;
using tests::train_step;
using tests::with_shared_memory;
using ::torch::Tensor;

// The user's allocator, from before the program, which all its files have: on a thread that asks for
// it, it has no memory for `refused_from` bytes and more; and it counts requests of a block's size.
thread_local std::size_t refused_from = std::numeric_limits<std::size_t>::max();
thread_local int block_requests = 0;

struct PoorAllocator final : c10::Allocator {
  c10::Allocator& before = *c10::GetCPUAllocator();
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes >= refused_from) throw std::bad_alloc();
    if (bytes == SquareImpl::kBlock) ++block_requests;
    return before.allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return before.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

[[maybe_unused]] const bool installed = [] {
  c10::SetCPUAllocator(new PoorAllocator, 0);
  return true;
}();

TEST(SharedFailures, tells_all_ranks_if_one_has_edited_a_parameter) {
  const auto texts = shared_errors<CommError>(3, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    const ::torch::NoGradGuard no_grad;
    if (comm.rank() == 1) net->fc2->weight.mul_(1);
    shared.step();
  });
  expect_all_contain(texts, "fc2.weight");
}

TEST(SharedFailures, names_a_missing_gradient_on_every_rank) {
  const auto texts = shared_errors<CommError>(3, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    set_gradients(*net, comm.rank(), 0);
    if (comm.rank() == 1) net->fc3->bias.mutable_grad().reset();
    shared.step();
  });
  expect_all_contain(texts, "there is no gradient for fc3.bias");
}

TEST(SharedFailures, tells_all_ranks_if_one_has_no_memory) {
  const auto texts = shared_errors<std::exception>(3, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm, {.shared = {.timeout = std::chrono::seconds(5)}});
    set_gradients(*net, comm.rank(), 0);
    if (comm.rank() == 1) refused_from = 512;
    try {
      shared.clip_grad_norm(1);
    } catch (...) {
      refused_from = std::numeric_limits<std::size_t>::max();
      throw;
    }
  });
  EXPECT_EQ(texts[1], "std::bad_alloc");  // with its type
  EXPECT_NE(texts[0].find("rank 1: SharedSGD: std::bad_alloc"), std::string::npos) << texts[0];
  EXPECT_NE(texts[2].find("rank 1: SharedSGD: std::bad_alloc"), std::string::npos) << texts[2];
}

TEST(SharedFailures, tells_all_ranks_if_one_has_no_memory_at_construction) {
  const auto texts = shared_errors<std::exception>(2, [](Communicator& comm) {
    Square net;
    if (comm.rank() == 1) refused_from = SquareImpl::kBlock / 4;  // of its half of the state
    try {
      SharedAdam shared(net, comm);
      set_gradients(*net, comm.rank(), 0);
      shared.step();
    } catch (...) {
      refused_from = std::numeric_limits<std::size_t>::max();
      throw;
    }
  });
  EXPECT_EQ(texts[1], "std::bad_alloc");
  EXPECT_NE(texts[0].find("rank 1: SharedAdam: std::bad_alloc"), std::string::npos) << texts[0];
}

TEST(SharedFailures, takes_no_blocks_of_gradients_to_save_and_load) {
  with_shared_memory(2, [](Communicator& comm) {
    Square net;
    SharedAdam shared(net, comm);
    ::torch::serialize::OutputArchive out;
    block_requests = 0;
    shared.save(out);
    EXPECT_EQ(block_requests, 2);  // both states
  });
}

void expect_no_update_before_all_ranks_step(bool clips) {
  const auto texts = shared_errors<std::exception>(2, [&](Communicator& comm) {
    Mlp net;
    fill(*net);
    SharedSGD shared(net, comm, {.lr = 1});
    const Tensor before = flat_parameters(*net);
    set_gradients(*net, comm.rank(), 0);
    if (clips) shared.clip_grad_norm(1);
    if (comm.rank() == 1) {
      comm.abort("rank 1 gives up");
      throw std::runtime_error("rank 1 gives up");
    }
    try {
      shared.step();
    } catch (const CommError&) {
      EXPECT_TRUE(::torch::equal(flat_parameters(*net), before));
      throw;
    }
  });
  expect_all_contain(texts, "rank 1 gives up");
}

TEST(SharedFailures, updates_nothing_before_all_ranks_step) {
  expect_no_update_before_all_ranks_step(/*clips=*/false);
  expect_no_update_before_all_ranks_step(/*clips=*/true);
}

TEST(SharedFailures, passes_on_that_a_rank_is_gone) {
  std::vector<std::string> texts(3);
  try {
    with_shared_memory(3, [&](Communicator& comm) {
      Mlp net;
      SharedSGD shared(net, comm);
      set_gradients(*net, comm.rank(), 0);
      try {  // the second step at the latest
        shared.step();
        if (comm.rank() == 2) throw std::runtime_error("rank 2 dies");
        shared.step();
      } catch (const CommError& error) {
        texts[place_of(comm)] = error.what();
      }
    });
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 2 dies");
  }
  EXPECT_NE(texts[0].find("rank 2"), std::string::npos) << texts[0];
  EXPECT_NE(texts[1].find("rank 2"), std::string::npos) << texts[1];
}

TEST(SharedFailures, passes_on_what_the_function_of_write_once_throws) {
  const auto texts = shared_errors<std::exception>(2, [](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm);
    shared.write_once([] { throw std::runtime_error("no such file"); });
  });
  EXPECT_EQ(texts[0], "no such file");
  EXPECT_EQ(texts[1], "SharedSGD: write_once: it failed on rank 0");
}

TEST(SharedFailures, waits_for_the_function_of_write_once_up_to_its_timeout) {
  std::latch given_up(1);
  const auto texts = shared_errors<CommError>(2, [&](Communicator& comm) {
    Mlp net;
    SharedSGD shared(net, comm, {.shared = {.timeout = std::chrono::seconds(2)}});
    try {
      shared.write_once([&] { given_up.wait(); });
    } catch (...) {
      if (comm.rank() == 1) given_up.count_down();
      throw;
    }
  });
  EXPECT_NE(texts[1].find("stood still for 2"), std::string::npos) << texts[1];
  EXPECT_NE(texts[1].find("write_once"), std::string::npos) << texts[1];
  EXPECT_FALSE(texts[0].empty());
}

TEST(SharedFailures, sends_rank_0_s_buffers_also_after_write_once_has_failed) {
  with_shared_memory(2, [](Communicator& comm) {
    Cnn net;
    SharedSGD shared(net, comm);
    EXPECT_ANY_THROW(shared.write_once([&] {
      net->bn1->running_mean.fill_(5);
      throw std::runtime_error("half way");
    }));
    EXPECT_TRUE((net->bn1->running_mean == 5).all().item<bool>());
  });
}

TEST(SharedFailures, keeps_gradients_in_place_after_what_went_wrong_without_harm) {
  with_shared_memory(2, [](Communicator& comm) {
    Square net;
    fill(*net);
    SharedSGD shared(net, comm, {.lr = 0.1});
    const auto in_place = [&] {
      train_step(net, shared, {2, SquareImpl::kSide}, comm.rank(), 0);
      return shared.gradient_bytes().in_place;
    };
    ASSERT_EQ(in_place(), SquareImpl::kBlock);
    EXPECT_ANY_THROW(shared.write_once([] { throw std::runtime_error("no such file"); }));
    EXPECT_EQ(in_place(), SquareImpl::kBlock);
    shared.clip_grad_norm(1);  // a step that is skipped, since the norm is too large, say
    EXPECT_EQ(in_place(), SquareImpl::kBlock);
    shared.set_lr(0.1 + comm.rank());
    EXPECT_THROW(shared.step(), UsageError);
    shared.set_lr(0.1);
    EXPECT_EQ(in_place(), SquareImpl::kBlock);
  });
}

}  // namespace
}  // namespace paceline
