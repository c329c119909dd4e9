// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/sim_command.h"
#include "apps/sim_report.h"
#include "apps/sim_text.h"
#include "paceline/base/error.h"

namespace paceline::apps {
namespace {

nlohmann::json json_of_run(int ranks, std::int64_t elements) {
  const SimOutput output = run_sim({.ranks = ranks, .elements = elements, .json = true});
  EXPECT_EQ(output.exit_code, 0);
  return nlohmann::json::parse(output.text);
}

TEST(Sim, shows_the_classic_ring_of_4_ranks_over_8_elements) {
  const auto ring = json_of_run(4, 8)["ring"];
  EXPECT_EQ(ring["ranks"], 4);
  EXPECT_EQ(ring["elements"], 8);
  EXPECT_EQ(ring["result"], (std::vector<double>{15, 16, 17, 18, 19, 20, 21, 22}));
  EXPECT_EQ(ring["expected"], ring["result"]);
  EXPECT_EQ(ring["matches"], true);
  EXPECT_EQ(ring["bits_equal"], true);
  EXPECT_EQ(ring["link_elements"], (std::vector<int>{12, 12, 12, 12}));
  EXPECT_EQ(ring["total_elements"], 48);
}

TEST(Sim, counts_what_moves_through_dps_master_its_devices_and_a_ring_link) {
  const auto volume = json_of_run(4, 8)["volume"];
  ASSERT_EQ(volume.size(), 4U);
  const std::vector<int> ranks{2, 4, 8, 16};
  const std::vector<double> master{2, 6, 14, 30};
  const std::vector<double> link{1, 1.5, 1.75, 1.875};
  for (std::size_t i = 0; i < 4; ++i) {
    for (const auto& row : {volume[i], volume[i]["formula"]}) {
      EXPECT_EQ(row["dp_master"], master[i]);
      EXPECT_EQ(row["dp_device"], 2.0);
      EXPECT_EQ(row["ring_link"], link[i]);
    }
    EXPECT_EQ(volume[i]["ranks"], ranks[i]);
  }
}

TEST(Sim, prints_counts_beside_formulas) {
  const std::string text = run_sim({}).text;
  for (const char* line : {
           "  every rank ends with 15 16 17 18 19 20 21 22\n",
           "  the plain mean is    15 16 17 18 19 20 21 22\n",
           "  by each link                 12         12   2n - c[r] - c[(r+1) mod N]\n",
           "  by all 4    links            48         48   2(N-1)n\n",
           "   2       2 M |      2 M          2 M | 2 M       1.00 M |     1.00 M\n",
           "  16      30 M |     30 M          2 M | 2 M       1.88 M |     1.88 M\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
  }
}

TEST(Sim, matches_the_plain_mean_for_ranks_and_elements_that_divide_nothing) {
  for (int ranks : {1, 2, 3, 5, 7, 49, 100}) {
    for (std::int64_t elements : {1, 8, 50, 1013}) {
      const auto ring = json_of_run(ranks, elements)["ring"];
      EXPECT_EQ(ring["matches"], true);
      EXPECT_EQ(ring["bits_equal"], true);
      EXPECT_EQ(ring["total_elements"], 2 * (ranks - 1) * elements);
      EXPECT_EQ(ring["link_elements"].size(), ranks == 1 ? 0U : static_cast<std::size_t>(ranks));
    }
  }
}

TEST(Sim, shows_the_slices_of_each_rank_after_every_step) {
  const std::string text = run_sim({.ranks = 3, .elements = 3, .steps = true}).text;
  for (const char* line : {
           "before\n"
           "  rank 0     0       1       2\n"
           "  rank 1     10      11      12\n"
           "  rank 2     20      21      22\n",
           "step 1 of 4: reduce-scatter; the right neighbour adds its own slice\n"
           "  rank 0     0      [22]     2\n"
           "  rank 1     10      11     [14]\n"
           "  rank 2    [30]     21      22\n",
           "step 2 of 4: reduce-scatter; the last term, then divided by N: finished\n"
           "  rank 0    [10]     22      2\n",
           "step 4 of 4: all-gather; the right neighbour keeps a finished slice\n"
           "  rank 0     10     [11]     12\n"
           "  rank 1     10      11     [12]\n"
           "  rank 2    [10]     11      12\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
  }
}

TEST(Sim, runs_1024_ranks_in_seconds) {
  const std::clock_t begin = std::clock();
  EXPECT_EQ(run_sim({.ranks = 1024}).exit_code, 0);
  EXPECT_LT(std::clock() - begin, 30 * CLOCKS_PER_SEC);  // of this process; sanitizers included
}

TEST(Sim, refuses_rings_that_cannot_be) {
  for (const SimOptions& options : std::vector<SimOptions>{{.ranks = 0},
                                                           {.ranks = -1},
                                                           {.ranks = 1'000'000'000},
                                                           {.elements = 0},
                                                           {.elements = -8},
                                                           {.elements = 1'000'000'000'000},
                                                           {.ranks = 1024, .steps = true},
                                                           {.json = true, .steps = true}}) {
    EXPECT_THROW((void)run_sim(options), UsageError);
  }
}

TEST(RingReport, fails_if_anything_differs) {
  const RingReport good = run_ring(4, 8, Record::kNothing);
  EXPECT_TRUE(good.passed());
  RingReport bad = good;
  bad.link_elements[2] = 13;
  EXPECT_FALSE(bad.passed());
  bad = good;
  bad.total_elements = 47;
  EXPECT_FALSE(bad.passed());
  bad = good;
  bad.matches = false;
  EXPECT_FALSE(bad.passed());
  EXPECT_NE(text_of(bad).find("plain mean: DIFFERENT"), std::string::npos);
  bad = good;
  bad.bits_equal = false;
  EXPECT_FALSE(bad.passed());
}

}  // namespace
}  // namespace paceline::apps
