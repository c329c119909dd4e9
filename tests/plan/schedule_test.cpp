// SPDX-License-Identifier: Apache-2.0
#include "paceline/plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "paceline/base/error.h"
#include "tests/plan/menu.h"

namespace paceline::plan {
namespace {

TEST(Chunk, tiles_the_buffer_in_nearly_equal_parts) {
  for (int world = 1; world <= 17; ++world) {
    for (std::uint64_t count : odd_counts(world)) {
      std::uint64_t at = 0;
      for (int c = 0; c < world; ++c) {
        const Range range = chunk(count, world, c);
        EXPECT_EQ(range.begin, at);
        EXPECT_LE(range.size() - count / static_cast<std::uint64_t>(world), 1U);
        EXPECT_EQ(range, chunk(count, world, c - world));
        EXPECT_EQ(range, chunk(count, world, c + 3L * world));
        at = range.end;
      }
      EXPECT_EQ(at, count);
    }
  }
}

TEST(RingReduceScatter, passes_partial_sums_to_the_right_until_chunk_r_is_whole_on_rank_r) {
  const Schedule s = make_schedule(
      Algorithm::kRing, {.what = Collective::kReduceScatter, .rank = 1, .world = 3, .count = 9});
  ASSERT_EQ(s.steps.size(), 4U);
  const Ranks self{1, 1};
  EXPECT_EQ(s.steps[0],
            (Step{.kind = Kind::kSend, .src = Memory::kIn, .peer = 2, .elements = {0, 3}}));
  EXPECT_EQ(s.steps[1], (Step{.kind = Kind::kRecv,
                              .src = Memory::kIn,
                              .dst = Memory::kSum,
                              .peer = 0,
                              .from = self,
                              .to = self,
                              .elements = {6, 9}}));
  EXPECT_EQ(s.steps[2], (Step{.kind = Kind::kSend,
                              .src = Memory::kSum,
                              .wire = Form::kSum,
                              .peer = 2,
                              .elements = {6, 9}}));
  EXPECT_EQ(s.steps[3], (Step{.kind = Kind::kRecv,
                              .src = Memory::kIn,
                              .dst = Memory::kOut,
                              .wire = Form::kSum,
                              .peer = 0,
                              .from = self,
                              .to = self,
                              .elements = {3, 6}}));
  EXPECT_EQ(s.out, (Range{3, 6}));
  EXPECT_EQ(s.sum, (Range{0, 9}));
  EXPECT_FALSE(s.sum_over_out);
}

TEST(Allreduce, is_literally_the_steps_of_reduce_scatter_then_those_of_allgather) {
  for (auto algorithm : {Algorithm::kRing, Algorithm::kPairwise}) {
    for (int world = 2; world <= 17; ++world) {
      for (int rank = 0; rank < world; ++rank) {
        Shape shape{.rank = rank, .world = world, .count = 1000};
        const Schedule whole = make_schedule(algorithm, shape);
        shape.what = Collective::kReduceScatter;
        std::vector<Step> joined = make_schedule(algorithm, shape).steps;
        shape.what = Collective::kAllGather;
        const std::vector<Step> second = make_schedule(algorithm, shape).steps;
        ASSERT_EQ(second[0].kind, Kind::kFold);  // its copy of kIn to kOut falls away
        joined.insert(joined.end(), second.begin() + 1, second.end());
        EXPECT_EQ(whole.steps, joined);
        EXPECT_EQ(whole.sum_over_out, algorithm == Algorithm::kRing && world > 2);
      }
    }
  }
}

TEST(Relay, adds_in_device_order_on_rank_0) {
  const Schedule s = make_schedule(Algorithm::kRelay, {.rank = 0, .world = 3, .count = 5});
  ASSERT_EQ(s.steps.size(), 5U);
  EXPECT_EQ(s.steps[2].from, (Ranks{0, 3}));
  EXPECT_EQ(s.steps[2].elements, (Range{0, 5}));
}

TEST(Barrier, tells_and_hears_from_ranks_at_distances_1_2_4) {
  const Schedule s =
      make_schedule(Algorithm::kRing, {.what = Collective::kBarrier, .rank = 4, .world = 5});
  ASSERT_EQ(s.steps.size(), 6U);
  for (int k = 0; k < 3; ++k) {
    const auto i = static_cast<std::size_t>(2 * k);
    const auto flag = static_cast<std::uint16_t>(k);
    EXPECT_EQ(s.steps[i].to, (Ranks{static_cast<std::uint16_t>((4 + (1 << k)) % 5), 1}));
    EXPECT_EQ(s.steps[i + 1].from, (Ranks{static_cast<std::uint16_t>((4 + 5 - (1 << k)) % 5), 1}));
    EXPECT_EQ(s.steps[i].flag, flag);
    EXPECT_EQ(s.steps[i + 1].flag, flag);
  }
}

TEST(Broadcast, reaches_every_rank_exactly_once) {
  for (int world = 1; world <= 33; ++world) {
    for (int root : {0, world / 2, world - 1}) {
      std::vector<int> heard(static_cast<std::size_t>(world));
      for (const Schedule& s :
           all_ranks(Algorithm::kTree,
                     {.what = Collective::kBroadcast, .world = world, .root = root, .count = 7})) {
        for (const Step& step : s.steps) {
          if (step.kind == Kind::kSend) ++heard[step.peer];
        }
      }
      for (int r = 0; r < world; ++r) {
        EXPECT_EQ(heard[static_cast<std::size_t>(r)], r == root ? 0 : 1);
      }
    }
  }
}

TEST(Schedule, of_one_rank_is_one_copy_and_sends_nothing) {
  for (const Dish& dish : menu()) {
    const Schedule s =
        make_schedule(dish.algorithm, {.what = dish.what, .count = 6, .windows = dish.windows});
    if (dish.what == Collective::kBarrier) {
      EXPECT_TRUE(s.steps.empty());
      continue;
    }
    ASSERT_EQ(s.steps.size(), 1U);
    EXPECT_EQ(s.steps[0], (Step{.kind = Kind::kFold,
                                .src = Memory::kIn,
                                .dst = Memory::kOut,
                                .from = {0, 1},
                                .to = {0, 1},
                                .elements = {0, 6}}));
    EXPECT_TRUE(s.inbox.empty());
    EXPECT_TRUE(s.sum.empty());
  }
}

TEST(Schedule, holds_the_ranges_that_its_docstring_names) {
  for (int rank = 0; rank < 4; ++rank) {
    const auto ranges = [&](Algorithm algorithm, Collective what) {
      const Schedule s = make_schedule(
          algorithm, {.what = what, .rank = rank, .world = 4, .root = 2, .count = 10});
      return std::pair(s.in, s.out);
    };
    const Range all{0, 10};
    const Range own = chunk(10, 4, rank);
    const auto ring = Algorithm::kRing;
    EXPECT_EQ(ranges(ring, Collective::kAllReduce), std::pair(all, all));
    EXPECT_EQ(ranges(ring, Collective::kReduceScatter), std::pair(all, own));
    EXPECT_EQ(ranges(ring, Collective::kAllGather), std::pair(own, all));
    EXPECT_EQ(ranges(Algorithm::kTree, Collective::kBroadcast),
              std::pair(rank == 2 ? all : Range{}, all));
    EXPECT_EQ(ranges(ring, Collective::kBarrier), std::pair(Range{}, Range{}));
  }
}

TEST(Schedule, of_an_empty_buffer_still_sends_its_headers_and_folds_nothing) {
  for (const Dish& dish : menu()) {
    if (dish.what == Collective::kBarrier) continue;
    std::size_t sends = 0;
    for (const Schedule& s :
         all_ranks(dish.algorithm, {.what = dish.what, .world = 5, .windows = dish.windows})) {
      for (const Step& step : s.steps) {
        sends += step.kind == Kind::kSend || step.kind == Kind::kPost ? 1 : 0;
        EXPECT_NE(step.kind, Kind::kFold);
      }
    }
    EXPECT_GE(sends, 4U);
  }
}

TEST(MakeSchedule, refuses_ranks_roots_and_algorithms_that_do_not_exist) {
  const auto ring = [](const Shape& shape) { (void)make_schedule(Algorithm::kRing, shape); };
  EXPECT_THROW(ring({.world = 0}), UsageError);
  EXPECT_THROW(ring({.world = 65536}), UsageError);
  EXPECT_THROW(ring({.rank = 2, .world = 2}), UsageError);
  EXPECT_THROW(ring({.rank = -1, .world = 2}), UsageError);
  EXPECT_THROW(ring({.world = 2, .root = 2}), UsageError);
  EXPECT_THROW(ring({.what = Collective::kBroadcast, .world = 2}), UsageError);
  EXPECT_THROW((void)make_schedule(static_cast<Algorithm>(99), {}), UsageError);
  EXPECT_THROW((void)make_schedule(Algorithm::kDirect, {.world = 2, .slices = 0}), UsageError);
  EXPECT_THROW((void)make_schedule(Algorithm::kDirect, {.world = 2, .slices = 32768}), UsageError);
}

TEST(MakeSchedule, says_which_algorithm_cannot_do_what) {
  try {
    (void)make_schedule(Algorithm::kOneStage, {.what = Collective::kAllGather, .world = 2});
    FAIL() << "one_stage has no allgather";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "algorithm 'one_stage' has no schedule for allgather");
  }
}

TEST(Slice, tiles_each_chunk_in_nearly_equal_parts) {
  for (std::uint64_t count : {0U, 1U, 7U, 100U, 1003U}) {
    for (std::uint32_t slices : {1U, 2U, 3U, 7U}) {
      for (int c = 0; c < 3; ++c) {
        std::uint64_t at = chunk(count, 3, c).begin;
        for (std::uint32_t p = 0; p < slices; ++p) {
          const Range part = slice(count, 3, c, p, slices);
          EXPECT_EQ(part.begin, at);
          EXPECT_LE(part.size() - chunk(count, 3, c).size() / slices, 1U);
          at = part.end;
        }
        EXPECT_EQ(at, chunk(count, 3, c).end);
      }
    }
  }
}

TEST(SlicesFor, gives_rounds_of_512_kib_and_never_more_than_32767) {
  EXPECT_EQ(slices_for(Dtype::kF32, 2, 0), 1U);
  EXPECT_EQ(slices_for(Dtype::kF32, 2, 128 << 10), 1U);
  EXPECT_EQ(slices_for(Dtype::kF32, 2, (128 << 10) + 1), 2U);
  EXPECT_EQ(slices_for(Dtype::kBF16, 4, 25 << 20), 100U);
  EXPECT_EQ(slices_for(Dtype::kF32, 64, 1 << 20), 4U);  // of 16 KiB for each rank
  EXPECT_EQ(slices_for(Dtype::kF64, 2, std::uint64_t{1} << 60), 32767U);
}

TEST(StageMap, keeps_the_slices_of_the_last_rounds_apart) {
  for (std::uint64_t count : {1U, 7U, 100U, 1003U}) {
    for (std::uint32_t slices : {1U, 2U, 5U}) {
      for (std::uint32_t slots : {1U, 2U, 3U}) {
        const StageMap map(count, 3, {.slices = slices, .slots = slots});
        for (std::uint32_t first = 0; first + slots <= std::max(slices, slots); ++first) {
          std::set<std::uint64_t> used;
          for (std::uint32_t p = first; p < std::min(slices, first + slots); ++p) {
            for (int c = 0; c < 3; ++c) {
              const Range part = slice(count, 3, c, p, slices);
              for (std::uint64_t e = part.begin; e < part.end; ++e) {
                const StageMap::Place place = map.find(e);
                EXPECT_LT(place.index, map.size());
                EXPECT_TRUE(used.insert(place.index).second);
                EXPECT_GE(place.run, part.end - e);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Direct, copies_through_a_stage_only_where_others_cannot_reach_the_memory) {
  Shape shape{.rank = 1, .world = 3, .count = 90, .slices = 5};
  EXPECT_EQ(make_schedule(Algorithm::kDirect, shape).stage, Staging{});
  shape.resident = false;
  const Schedule staged = make_schedule(Algorithm::kDirect, shape);
  EXPECT_EQ(staged.stage, (Staging{.slices = 5, .slots = 3}));
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  for (const Step& step : staged.steps) {
    if (step.dst == Memory::kStage) in += step.elements.size();
    if (step.src == Memory::kStage) out += step.elements.size();
  }
  EXPECT_EQ(in, 60U);  // all but the own chunk
  EXPECT_EQ(out, 60U);
}

TEST(Direct, has_three_slots_where_results_come_back_and_else_four) {
  const auto slots = [](Collective what, std::uint32_t slices) {
    const Shape shape{.what = what, .world = 3, .count = 90, .resident = false, .slices = slices};
    return make_schedule(Algorithm::kDirect, shape).stage.slots;
  };
  EXPECT_EQ(slots(Collective::kAllReduce, 5), 3U);
  for (auto what : {Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast}) {
    EXPECT_EQ(slots(what, 5), 4U);
  }
  EXPECT_EQ(slots(Collective::kAllReduce, 2), 2U);  // no more than there are slices
}

TEST(ChooseAlgorithm, goes_straight_to_the_others_memory_where_there_is_a_way) {
  const auto choose = [](Collective what, std::uint64_t count) {
    return choose_algorithm(what, Dtype::kF32, 4, count, true);
  };
  EXPECT_EQ(choose(Collective::kAllReduce, 2048), Algorithm::kOneStage);  // 8 KiB
  EXPECT_EQ(choose(Collective::kAllReduce, 2049), Algorithm::kDirect);
  for (auto what : {Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast,
                    Collective::kBarrier}) {
    EXPECT_EQ(choose(what, 10), Algorithm::kDirect);
  }
}

TEST(ChooseAlgorithm, sends_small_buffers_in_one_stage_and_16_bit_floats_pairwise) {
  const auto choose = [](Dtype dtype, int world, std::uint64_t count) {
    return choose_algorithm(Collective::kAllReduce, dtype, world, count);
  };
  EXPECT_EQ(choose(Dtype::kF32, 2, 8192), Algorithm::kOneStage);  // sends 32 KiB
  EXPECT_EQ(choose(Dtype::kF32, 2, 8193), Algorithm::kRing);
  EXPECT_EQ(choose(Dtype::kF32, 5, 2048), Algorithm::kOneStage);
  EXPECT_EQ(choose(Dtype::kF32, 5, 2049), Algorithm::kRing);
  EXPECT_EQ(choose(Dtype::kBF16, 2, 16384), Algorithm::kOneStage);
  EXPECT_EQ(choose(Dtype::kBF16, 2, 16385), Algorithm::kPairwise);
  EXPECT_EQ(choose(Dtype::kI64, 2, ~std::uint64_t{0}), Algorithm::kRing);
}

TEST(ChooseAlgorithm, picks_one_that_exists_for_every_collective_type_and_size) {
  for (auto what : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                    Collective::kBroadcast, Collective::kBarrier}) {
    for (auto dtype : {Dtype::kF32, Dtype::kF64, Dtype::kF16, Dtype::kBF16, Dtype::kU8, Dtype::kI32,
                       Dtype::kI64}) {
      for (int world : {1, 2, 17, 1024}) {
        for (std::uint64_t count : {0ULL, 1ULL, 10'000ULL, 10'000'000ULL}) {
          EXPECT_TRUE(supports(choose_algorithm(what, dtype, world, count), what));
        }
      }
    }
  }
}

}  // namespace
}  // namespace paceline::plan
