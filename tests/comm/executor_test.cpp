// SPDX-License-Identifier: Apache-2.0
// What a turn of the executor looks at.
#include "paceline/comm/executor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "paceline/comm/call_state.h"
#include "paceline/comm/issued_calls.h"
#include "paceline/link/shm/shm_fabric.h"
#include "paceline/plan/schedule.h"
#include "tests/comm/watched_links.h"

namespace paceline {
namespace {

using Reach = Executor::Reach;

/// Rank 0 of two that share memory, with barriers in flight for which rank 1 has not come.
class Barriers {
 public:
  explicit Barriers(const std::vector<Algorithm>& algorithms)
      : both_(link::make_local_shm_fabrics(2)),
        fabric_(std::move(both_[0]), 1, [this](link::Windows&) { ++looks; }),
        executor_(0, 2, &fabric_, {}, 1 << 16, issued_) {
    for (const Algorithm algorithm : algorithms) add(algorithm);
  }

  [[nodiscard]] bool needs_links() const { return executor_.needs_links(); }
  /// Looks at the link in one turn. The first turns have something to post.
  int looks_in_turn(Reach reach) {
    while (executor_.advance(Reach::kAll)) {
    }
    looks = 0;
    EXPECT_FALSE(executor_.advance(reach));
    return looks;
  }

  int looks = 0;

 private:
  void add(Algorithm algorithm) {
    const plan::Shape shape{.what = Collective::kBarrier,
                            .rank = 0,
                            .world = 2,
                            .windows = algorithm == Algorithm::kDirect};
    const Descriptor what{
        .what = Collective::kBarrier, .algorithm = algorithm, .dtype = Dtype::kU8};
    const plan::Schedule schedule = plan::make_schedule(algorithm, shape);
    executor_.add(std::make_shared<CallState>(
        what, issued_.add(what), 2, schedule, 0,
        CallMemory(schedule, 0, 2, what.dtype, 0, PieceList(), PieceList()),
        std::chrono::minutes(1)));
  }

  std::vector<std::unique_ptr<link::Fabric>> both_;
  test::WatchedFabric fabric_;
  IssuedCalls issued_;
  Executor executor_;
};

TEST(Executor, leaves_links_alone_that_no_call_needs) {
  Barriers barrier({Algorithm::kDirect});
  EXPECT_FALSE(barrier.needs_links());
  EXPECT_EQ(barrier.looks_in_turn(Reach::kWindows), 0);
  EXPECT_EQ(barrier.looks_in_turn(Reach::kAll), 1);
}

TEST(Executor, needs_links_for_one_call_of_several) {
  Barriers barriers({Algorithm::kDirect, Algorithm::kTree, Algorithm::kDirect});
  EXPECT_TRUE(barriers.needs_links());
  EXPECT_EQ(barriers.looks_in_turn(Reach::kAll), 1);
  EXPECT_FALSE(Barriers({}).needs_links());
}

}  // namespace
}  // namespace paceline
