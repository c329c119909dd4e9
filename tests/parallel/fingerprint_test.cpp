// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/fingerprint.h"

#include <vector>

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/comm/init.h"

namespace paceline {
namespace {

const Fingerprint kModel{{"parameter a", "f32 [2]"}, {"parameter b", "f32 [3]"}};

TEST(FirstDifference, names_the_thing_both_sides_and_the_ranks) {
  EXPECT_EQ(first_difference(kModel, kModel, "rank 1"), "");
  EXPECT_EQ(
      first_difference(kModel, {{"parameter a", "f32 [2]"}, {"parameter b", "f64 [3]"}}, "rank 1"),
      "parameter b is f32 [3] on rank 0, but f64 [3] on rank 1");
  EXPECT_EQ(first_difference(kModel, {{"parameter a", "f32 [2]"}}, "ranks 1, 2"),
            "parameter b (f32 [3]) is there on rank 0, but not on ranks 1, 2");
  EXPECT_EQ(first_difference({{"parameter b", "f32 [3]"}}, kModel, "rank 1"),
            "parameter a (f32 [2]) is there on rank 1, but not on rank 0");
  EXPECT_EQ(first_difference(kModel, {kModel[1], kModel[0]}, "rank 1"),
            "the order differs: rank 0 has parameter a where rank 1 has parameter b");
}

std::vector<std::string> errors_of(int world, const std::function<Fingerprint(int)>& of_rank) {
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  spawn_ranks(world, [&](Communicator& comm) {
    std::string& text = texts[static_cast<std::size_t>(comm.rank())];
    try {
      require_equal_on_all_ranks(of_rank(comm.rank()), comm);
    } catch (const UsageError& error) {
      text = error.what();
    }
    comm.barrier();  // the communicator is still good
  });
  return texts;
}

TEST(Fingerprint, is_silent_where_all_ranks_agree) {
  for (const int world : {1, 2, 5}) {
    for (const auto& text : errors_of(world, [](int) { return kModel; })) EXPECT_EQ(text, "");
  }
}

TEST(Fingerprint, gives_every_rank_the_same_error) {
  const auto texts = errors_of(4, [](int rank) {
    Fingerprint mine = kModel;
    if (rank == 1 || rank == 3) mine[1].value = "f32 [4]";
    return mine;
  });
  for (const auto& text : texts) {
    EXPECT_EQ(text,
              "DistributedDataParallel: the models differ: parameter b is f32 [3] on rank 0, but "
              "f32 [4] on ranks 1, 3");
  }
}

TEST(Fingerprint, works_if_a_rank_has_nothing) {
  const auto texts = errors_of(2, [](int rank) { return rank == 0 ? Fingerprint{} : kModel; });
  EXPECT_EQ(texts[0],
            "DistributedDataParallel: the models differ: parameter a (f32 [2]) is there on rank 1, "
            "but not on rank 0");
  EXPECT_EQ(texts[1], texts[0]);
}

}  // namespace
}  // namespace paceline
