// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/distributed_sampler.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <sstream>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "paceline/base/error.h"

namespace paceline {
namespace {

using Indices = std::vector<std::size_t>;

Indices drain(DistributedSampler& sampler, std::size_t batch_size) {
  Indices all;
  while (const auto batch = sampler.next(batch_size)) {
    EXPECT_FALSE(batch->empty());
    all.insert(all.end(), batch->begin(), batch->end());
  }
  return all;
}

Indices whole_pass(DistributedSampler& sampler, std::size_t batch_size = 3) {
  sampler.reset();
  return drain(sampler, batch_size);
}

TEST(DistributedSampler, strides_through_the_order_and_pads_from_its_start) {
  DistributedSampler sampler(5, 1, 2, {.shuffle = false});
  EXPECT_EQ(sampler.size(), 3U);
  EXPECT_EQ(sampler.next(2), (Indices{1, 3}));
  EXPECT_EQ(sampler.next(2), (Indices{0}));
  EXPECT_EQ(sampler.next(2), std::nullopt);
}

TEST(DistributedSampler, refuses_a_rank_outside_the_world_and_contradicting_options) {
  EXPECT_THROW(DistributedSampler(5, 2, 2), UsageError);
  EXPECT_THROW(DistributedSampler(5, -1, 2), UsageError);
  EXPECT_THROW(DistributedSampler(5, 0, 0), UsageError);
  EXPECT_THROW(DistributedSampler(5, 0, 1, {.drop_last = true, .uneven = true}), UsageError);
  DistributedSampler sampler(5, 0, 1);
  EXPECT_THROW(sampler.set_epoch(-1), UsageError);
  EXPECT_THROW((void)sampler.next(0), UsageError);
}

TEST(DistributedSampler, has_another_order_in_each_epoch_and_the_same_in_the_same) {
  DistributedSampler sampler(100, 0, 2, {.seed = 4});
  const Indices first = whole_pass(sampler);
  EXPECT_EQ(whole_pass(sampler), first);
  sampler.set_epoch(1);
  EXPECT_NE(whole_pass(sampler), first);
  sampler.set_epoch(0);
  EXPECT_EQ(whole_pass(sampler), first);
  DistributedSampler other(100, 0, 2, {.seed = 1});
  sampler.set_epoch(1);
  EXPECT_NE(whole_pass(other), whole_pass(sampler));
}

TEST(DistributedSampler, applies_an_epoch_set_in_mid_pass_to_the_next_pass) {
  DistributedSampler sampler(20, 0, 1);
  const Indices first = whole_pass(sampler, 20);
  sampler.reset();
  (void)sampler.next(5);
  sampler.set_epoch(3);
  EXPECT_EQ(sampler.state(1).epoch, 0U);
  Indices rest = drain(sampler, 5);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), first.begin() + 5));
  EXPECT_NE(whole_pass(sampler, 20), first);
}

struct CountingDataset : ::torch::data::datasets::Dataset<CountingDataset, std::size_t> {
  CountingDataset(std::size_t size, std::vector<std::atomic<int>>* reads)
      : size_(size), reads_(reads) {}
  std::size_t get(std::size_t index) override {
    reads_->at(index).fetch_add(1);
    return index;
  }
  std::optional<std::size_t> size() const override { return size_; }
  std::size_t size_;
  std::vector<std::atomic<int>>* reads_;
};

TEST(DistributedSampler, steers_the_copy_that_a_data_loader_holds) {
  std::vector<std::atomic<int>> reads(24);
  DistributedSampler sampler(24, 1, 2);
  auto loader = ::torch::data::make_data_loader(
      CountingDataset(24, &reads), sampler,
      ::torch::data::DataLoaderOptions().batch_size(5).workers(2).max_jobs(2));
  for (const int epoch : {1, 4}) {
    DistributedSampler twin(24, 1, 2);
    twin.set_epoch(epoch);
    const Indices expected = whole_pass(twin);
    sampler.set_epoch(epoch);
    Indices seen;
    for (const auto& batch : *loader) seen.insert(seen.end(), batch.begin(), batch.end());
    EXPECT_EQ(seen, expected);
  }
}

TEST(DistributedSampler, makes_each_rank_read_only_its_shard) {
  for (const std::size_t size : {1U, 3U, 10U}) {
    std::vector<std::atomic<int>> reads(size);
    for (int rank = 0; rank < 3; ++rank) {
      auto loader = ::torch::data::make_data_loader(
          CountingDataset(size, &reads), DistributedSampler(size, rank, 3, {.uneven = true}),
          ::torch::data::DataLoaderOptions().batch_size(2));
      for (const auto& batch : *loader) EXPECT_FALSE(batch.empty());
    }
    for (const auto& read : reads) EXPECT_EQ(read.load(), 1);
  }
}

TEST(DistributedSampler, counts_what_was_used_and_not_what_a_loader_asked_for) {
  DistributedSampler sampler(20, 0, 2, {.shuffle = false});
  for (int ahead = 0; ahead < 3; ++ahead) (void)sampler.next(3);
  EXPECT_EQ(sampler.state(0).consumed, 0U);
  EXPECT_EQ(sampler.state(1).consumed, 6U);
  EXPECT_EQ(sampler.state(3).consumed, 18U);
  EXPECT_THROW((void)sampler.state(4), UsageError);
  (void)sampler.next(3);
  EXPECT_EQ(sampler.state(4).consumed, 20U);
}

TEST(DistributedSampler, has_the_same_state_on_every_rank) {
  for (const bool uneven : {false, true}) {
    for (const std::size_t batch : {1U, 2U, 4U}) {
      std::vector<DistributedSampler> ranks;
      for (int rank = 0; rank < 3; ++rank)
        ranks.emplace_back(8, rank, 3, SamplerOptions{.uneven = uneven});
      for (auto& rank : ranks) (void)drain(rank, batch);
      for (std::size_t done = 0; done <= 3 / batch; ++done) {
        EXPECT_EQ(ranks[1].state(done), ranks[0].state(done));
        EXPECT_EQ(ranks[2].state(done), ranks[0].state(done));
      }
      EXPECT_EQ(ranks[2].state(4), ranks[0].state(4));
    }
  }
}

// What all ranks of `world` read from `state` on, in no particular order, in one pass.
Indices read_from(const SamplerState& state, int world, const SamplerOptions& options) {
  Indices all;
  for (int rank = 0; rank < world; ++rank) {
    DistributedSampler sampler(state.size, rank, world, options);
    sampler.restore(state);
    const Indices shard = whole_pass(sampler, 2);
    all.insert(all.end(), shard.begin(), shard.end());
  }
  return all;
}

void expect_resumes_exactly(std::size_t size, int before, int after) {
  const SamplerOptions options{.seed = 3, .uneven = true};
  DistributedSampler probe(size, 0, before, options);
  probe.set_epoch(2);
  const std::size_t batches = drain(probe, 1).size();
  for (std::size_t done = 0; done <= batches; ++done) {
    Indices seen;
    for (int rank = 0; rank < before; ++rank) {
      DistributedSampler sampler(size, rank, before, options);
      sampler.set_epoch(2);
      for (std::size_t batch = 0; batch < done; ++batch) {
        if (const auto one = sampler.next(1)) seen.push_back(one->front());
      }
    }
    const Indices rest = read_from(probe.state(done), after, options);
    seen.insert(seen.end(), rest.begin(), rest.end());
    std::sort(seen.begin(), seen.end());
    Indices expected(size);
    std::iota(expected.begin(), expected.end(), std::size_t{0});
    EXPECT_EQ(seen, expected) << size << ": " << before << " -> " << after << " after " << done;
  }
}

TEST(DistributedSampler, resumes_on_another_world_size_without_skipping_or_repeating) {
  for (const int before : {1, 2, 3, 5, 8}) {
    for (const int after : {1, 2, 3, 5, 8}) {
      const auto ranks = static_cast<std::size_t>(before);
      for (const std::size_t size :
           {std::size_t{0}, std::size_t{1}, ranks - 1, ranks, ranks + 1, 2 * ranks + 1}) {
        expect_resumes_exactly(size, before, after);
      }
    }
  }
}

TEST(DistributedSampler, resumes_a_padded_pass_with_padding_only_at_its_end) {
  DistributedSampler first(10, 0, 2, {.shuffle = false});
  (void)first.next(2);
  const Indices rest = read_from(first.state(1), 4, {.shuffle = false});
  EXPECT_EQ(rest, (Indices{4, 8, 5, 9, 6, 0, 7, 1}));
}

TEST(DistributedSampler, resumes_once_and_then_makes_whole_passes) {
  DistributedSampler sampler(6, 0, 1, {.shuffle = false});
  SamplerState state = sampler.state(0);
  state.consumed = 4;
  sampler.restore(state);
  sampler.set_epoch(0);  // as a loop does that starts at the saved epoch
  EXPECT_EQ(whole_pass(sampler), (Indices{4, 5}));
  EXPECT_EQ(sampler.state(1).consumed, 6U);
  EXPECT_EQ(whole_pass(sampler), (Indices{0, 1, 2, 3, 4, 5}));
  sampler.restore(state);
  sampler.set_epoch(1);
  EXPECT_EQ(whole_pass(sampler).size(), 6U);
}

TEST(DistributedSampler, refuses_the_state_of_another_dataset_or_order) {
  DistributedSampler sampler(6, 0, 1, {.seed = 2});
  const SamplerState good = sampler.state(0);
  for (const auto change :
       {+[](SamplerState& s) { s.size = 7; }, +[](SamplerState& s) { s.seed = 3; },
        +[](SamplerState& s) { s.shuffle = false; }, +[](SamplerState& s) { s.drop_last = true; },
        +[](SamplerState& s) { s.uneven = true; }, +[](SamplerState& s) { s.consumed = 7; }}) {
    SamplerState bad = good;
    change(bad);
    EXPECT_THROW(sampler.restore(bad), UsageError);
  }
}

TEST(DistributedSampler, goes_through_an_archive) {
  DistributedSampler sampler(9, 0, 2, {.seed = ~std::uint64_t{0}});
  sampler.set_epoch(5);
  (void)sampler.next(2);
  ::torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream file;
  out.save_to(file);
  ::torch::serialize::InputArchive in;
  in.load_from(file);
  DistributedSampler other(9, 1, 3, {.seed = ~std::uint64_t{0}});
  other.load(in);
  EXPECT_EQ(other.state(0), sampler.state(1));
  EXPECT_EQ(other.state(0).consumed, 4U);
}

TEST(DistributedSampler, takes_a_new_length_at_reset) {
  DistributedSampler sampler(4, 0, 2, {.shuffle = false});
  (void)sampler.next(1);
  sampler.reset(6);
  EXPECT_EQ(drain(sampler, 9), (Indices{0, 2, 4}));
}

}  // namespace
}  // namespace paceline
