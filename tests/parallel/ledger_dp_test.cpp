// SPDX-License-Identifier: Apache-2.0
// The bytes that DataParallel writes down, against the formula: exactly.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "data_parallel_support.h"

namespace paceline {
namespace {

using tests::batch;
using tests::classes;
using tests::Cnn;
using tests::error_of;
using tests::make;
using tests::Mlp;
using ::torch::Tensor;
namespace functional = ::torch::nn::functional;

constexpr std::int64_t kBatch = 56;  // makes as many parts as there are devices, for 2 … 8
constexpr std::uint64_t kFloat = 4;
constexpr std::uint64_t kLong = 8;

using Bytes = std::map<std::pair<Copy, int>, std::uint64_t>;  // by purpose and the other device

// All copies have device 0 at one end; which, depends on the purpose.
Bytes bytes_by_device(const Ledger& ledger) {
  Bytes result;
  for (const CopyRecord& copy : ledger.copies) {
    const bool outwards = copy.what != Copy::kGather && copy.what != Copy::kReduce;
    EXPECT_EQ(outwards ? copy.from : copy.to, 0);
    EXPECT_GT(copy.bytes, 0U);
    EXPECT_LE(copy.begin, copy.end);
    result[{copy.what, outwards ? copy.to : copy.from}] += copy.bytes;
  }
  return result;
}

std::uint64_t bytes_of(const std::vector<Tensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

// The sizes of the parts by torch::chunk's rule.
std::vector<std::uint64_t> parts_of(std::int64_t size, int devices) {
  std::vector<std::uint64_t> sizes;
  for (const auto& part : ::torch::empty({size}).chunk(devices)) {
    sizes.push_back(static_cast<std::uint64_t>(part.size(0)));
  }
  return sizes;
}

void expect_parameters_and_gradients(const Bytes& bytes, std::uint64_t m, int devices, int steps) {
  const auto times = static_cast<std::uint64_t>(steps);
  std::uint64_t through_first = 0;
  for (int i = 1; i < devices; ++i) {
    EXPECT_EQ(bytes.at({Copy::kReplicate, i}), times * m) << i;
    EXPECT_EQ(bytes.at({Copy::kReduce, i}), times * m) << i;
    through_first += bytes.at({Copy::kReplicate, i}) + bytes.at({Copy::kReduce, i});
  }
  EXPECT_EQ(through_first, times * 2 * static_cast<std::uint64_t>(devices - 1) * m);
  EXPECT_FALSE(bytes.contains({Copy::kReplicate, 0}));
  EXPECT_FALSE(bytes.contains({Copy::kReduce, 0}));
}

void expect_phases(const Ledger& ledger, int devices, int steps) {
  std::map<std::pair<Phase, int>, int> seen;
  for (const PhaseRecord& phase : ledger.phases) {
    ++seen[{phase.what, phase.device}];
    EXPECT_LE(phase.begin, phase.end);
  }
  for (int i = 0; i < devices; ++i) {
    EXPECT_EQ((seen[{Phase::kForward, i}]), steps);
    EXPECT_EQ((seen[{Phase::kBackward, i}]), steps);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(2 * devices));
}

template <typename Holder>
void expect_formula(const std::vector<std::int64_t>& shape, std::uint64_t outputs, int devices) {
  constexpr int kSteps = 3;
  Holder net;
  DataParallel dp(net, cpu_devices(devices), make<Holder>);
  ::torch::optim::SGD optimizer(dp.parameters(), 0.1);
  dp.start_ledger();
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    functional::cross_entropy(dp(batch(shape, 0, step)), classes(kBatch, step)).backward();
    optimizer.step();
  }
  const Ledger ledger = dp.take_ledger();
  const Bytes bytes = bytes_by_device(ledger);
  const std::uint64_t m = bytes_of(net->parameters()), state = bytes_of(net->buffers());
  EXPECT_EQ(dp.statistics().trainable_bytes, m);
  expect_parameters_and_gradients(bytes, m, devices, kSteps);
  expect_phases(ledger, devices, kSteps);
  const auto parts = parts_of(kBatch, devices);
  ASSERT_EQ(parts.size(), static_cast<std::size_t>(devices));
  const std::uint64_t inputs = batch(shape, 0).nbytes() / kBatch;
  for (int i = 1; i < devices; ++i) {
    const std::uint64_t size = parts[static_cast<std::size_t>(i)];
    EXPECT_EQ(bytes.at({Copy::kScatter, i}), kSteps * size * (inputs + outputs * kFloat));
    EXPECT_EQ(bytes.at({Copy::kGather, i}), kSteps * size * outputs * kFloat);
    EXPECT_EQ((bytes.contains({Copy::kState, i}) ? bytes.at({Copy::kState, i}) : 0),
              kSteps * state);
  }
}

class LedgerOfDataParallel : public ::testing::TestWithParam<int> {};

TEST_P(LedgerOfDataParallel, equals_the_formula_for_steps_of_an_mlp) {
  expect_formula<Mlp>({kBatch, 12}, 5, GetParam());
}

TEST_P(LedgerOfDataParallel, equals_the_formula_for_steps_of_a_cnn_with_batch_norm) {
  expect_formula<Cnn>({kBatch, 1, 8, 8}, 5, GetParam());
}

TEST_P(LedgerOfDataParallel, of_a_loss_in_the_replicas_has_no_outputs_but_one_number) {
  const int devices = GetParam();
  Mlp net;
  DataParallel dp(net, cpu_devices(devices), make<Mlp>);
  dp.start_ledger();
  dp.forward_loss(batch({kBatch, 12}, 0), classes(kBatch, 0), [](auto output, auto target) {
      return functional::cross_entropy(output, target);
    }).backward();
  const Bytes bytes = bytes_by_device(dp.take_ledger());
  expect_parameters_and_gradients(bytes, bytes_of(net->parameters()), devices, 1);
  const auto parts = parts_of(kBatch, devices);
  for (int i = 1; i < devices; ++i) {
    const std::uint64_t size = parts[static_cast<std::size_t>(i)];
    EXPECT_EQ(bytes.at({Copy::kScatter, i}), size * (12 * kFloat + kLong) + kFloat);
    EXPECT_EQ(bytes.at({Copy::kGather, i}), kFloat);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LedgerOfDataParallel, ::testing::Range(2, 9));

TEST(LedgerOfDataParallel, has_nothing_for_devices_that_a_small_batch_leaves_idle) {
  Mlp net;
  DataParallel dp(net, cpu_devices(4), make<Mlp>);
  dp.start_ledger();
  dp(batch({2, 12}, 0)).sum().backward();
  const Ledger ledger = dp.take_ledger();
  expect_parameters_and_gradients(bytes_by_device(ledger), bytes_of(net->parameters()), 2, 1);
  for (const CopyRecord& copy : ledger.copies) EXPECT_LT(std::max(copy.from, copy.to), 2);
  expect_phases(ledger, 2, 1);
}

TEST(LedgerOfDataParallel, keeps_frozen_parameters_apart) {
  Mlp net;
  net->fc1->weight.set_requires_grad(false);
  DataParallel dp(net, cpu_devices(2), make<Mlp>);
  dp.start_ledger();
  dp(batch({4, 12}, 0)).sum().backward();
  const Bytes bytes = bytes_by_device(dp.take_ledger());
  const std::uint64_t frozen = net->fc1->weight.nbytes();
  expect_parameters_and_gradients(bytes, bytes_of(net->parameters()) - frozen, 2, 1);
  EXPECT_EQ(bytes.at({Copy::kState, 1}), frozen);
  EXPECT_EQ(dp.statistics().trainable_bytes, bytes_of(net->parameters()) - frozen);
}

TEST(LedgerOfDataParallel, counts_gradients_that_inputs_need_and_none_that_parameters_lack) {
  Mlp net;
  DataParallel dp(net, cpu_devices(2), make<Mlp>);
  const Tensor x = batch({4, 12}, 0).requires_grad_();
  const Tensor output = dp(x);
  dp.start_ledger();
  const auto gradient = ::torch::autograd::grad({output.sum()}, {x})[0];
  const Bytes bytes = bytes_by_device(dp.take_ledger());
  EXPECT_EQ(gradient.sizes(), x.sizes());
  EXPECT_EQ(bytes.at({Copy::kGather, 1}), 2U * 12 * kFloat);
  EXPECT_EQ(bytes.at({Copy::kScatter, 1}), 2U * 5 * kFloat);
  EXPECT_FALSE(bytes.contains({Copy::kReduce, 1}));
}

TEST(LedgerOfDataParallel, records_nothing_before_it_starts_and_after_it_is_taken) {
  Mlp net;
  DataParallel dp(net, cpu_devices(2), make<Mlp>);
  dp(batch({4, 12}, 0)).sum().backward();
  dp.start_ledger();
  const Ledger empty = dp.take_ledger();
  EXPECT_TRUE(empty.copies.empty() && empty.phases.empty() && empty.calls.empty());
  dp(batch({4, 12}, 0)).sum().backward();
  EXPECT_NE(error_of<UsageError>([&] { (void)dp.take_ledger(); }), "");
  EXPECT_NE(error_of<UsageError>([&] { dp.start_ledger(0); }), "");
}

TEST(LedgerOfDataParallel, counts_what_is_beyond_its_capacity) {
  Mlp net;
  DataParallel dp(net, cpu_devices(2), make<Mlp>);
  dp.start_ledger(1);
  dp(batch({4, 12}, 0)).sum().backward();
  const Ledger ledger = dp.take_ledger();
  EXPECT_EQ(ledger.copies.size(), 1U);
  EXPECT_EQ(ledger.phases.size(), 1U);
  EXPECT_EQ(ledger.left_out, 4U + 3U);  // replicate, scatter twice, gather, reduce; four phases
}

TEST(PeakBytesOfDataParallel, are_parameters_gradients_and_outputs_of_each_device) {
  Mlp net;
  DataParallel dp(net, cpu_devices(2), make<Mlp>);
  const std::uint64_t m = bytes_of(net->parameters());
  EXPECT_EQ(dp.statistics().peak_bytes, (std::vector<std::uint64_t>{m, m}));
  const std::uint64_t part = 4 * 5 * kFloat, joined = 7 * 5 * kFloat, last = 3 * 5 * kFloat;
  const Tensor x = batch({7, 12}, 0);
  {
    const ::torch::NoGradGuard no_grad;
    dp(x);
  }
  EXPECT_EQ(dp.statistics().peak_bytes, (std::vector<std::uint64_t>{m + part + joined, m + last}));
  dp(x).sum().backward();
  EXPECT_EQ(dp.statistics().peak_bytes,
            (std::vector<std::uint64_t>{2 * m + part + joined, 2 * m + last}));
  dp(x).sum().backward();  // to gradients that are there already
  EXPECT_EQ(dp.statistics().peak_bytes,
            (std::vector<std::uint64_t>{3 * m + part + joined, 2 * m + last}));
}

}  // namespace
}  // namespace paceline
