// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/report.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

namespace paceline::apps {
namespace {

using Texts = std::vector<std::string>;

TEST(Report, says_nothing_after_a_success) {
  const Outcome outcome{.world_size = 2, .ends = {{}, {}}};
  EXPECT_EQ(report(outcome), Texts{});
  EXPECT_EQ(exit_code(outcome), 0);
}

TEST(Report, ends_with_the_first_failure) {
  const Outcome outcome{.first_rank = 4,
                        .world_size = 8,
                        .ends = {{.code = 1}, {.code = 7}, {}, {.signal = SIGTERM}},
                        .first_failure = 1,
                        .last_lines = {"loading", "no such file"}};
  EXPECT_EQ(
      report(outcome),
      (Texts{"the last lines of rank 5:", "  | loading", "  | no such file",
             "after it rank 4 exited with code 1, rank 7 was killed by SIGTERM (asked to end)",
             "rank 5 of 8 failed first: it exited with code 7"}));
  EXPECT_EQ(exit_code(outcome), 7);
}

TEST(Report, names_a_signal_and_what_it_means) {
  const Outcome outcome{.world_size = 1, .ends = {{.signal = SIGSEGV}}, .first_failure = 0};
  EXPECT_EQ(report(outcome),
            Texts{"rank 0 of 1 failed first: it was killed by SIGSEGV (invalid memory access)"});
  EXPECT_EQ(exit_code(outcome), 139);
}

TEST(Report, names_only_some_of_very_many) {
  Outcome outcome{.world_size = 100, .ends = std::vector<net::ExitStatus>(100, {.code = 1})};
  outcome.first_failure = 0;
  const std::string others = report(outcome).front();
  EXPECT_NE(others.find("rank 8 exited"), std::string::npos) << others;
  EXPECT_EQ(others.find("rank 9 exited"), std::string::npos) << others;
  EXPECT_TRUE(others.ends_with("and 91 more")) << others;
}

TEST(Report, an_interrupted_job_names_the_signal) {
  const Outcome outcome{.ends = {{.signal = SIGINT}}, .interrupted_by = SIGINT};
  EXPECT_NE(report(outcome).back().find("SIGINT"), std::string::npos);
  EXPECT_EQ(exit_code(outcome), 130);
}

TEST(Report, lost_output_is_no_success) {
  const Outcome outcome{.ends = {{}, {}},
                        .losses = {"cannot write to 'a': No space left on device"}};
  EXPECT_EQ(report(outcome),
            Texts{"output of the ranks was lost: cannot write to 'a': No space left on device"});
  EXPECT_EQ(exit_code(outcome), 1);
}

TEST(Report, the_failure_of_a_rank_comes_before_lost_output) {
  const Outcome outcome{.ends = {{.code = 7}}, .first_failure = 0, .losses = {"full"}};
  EXPECT_EQ(report(outcome), (Texts{"output of the ranks was lost: full",
                                    "rank 0 of 1 failed first: it exited with code 7"}));
  EXPECT_EQ(exit_code(outcome), 7);
}

TEST(Report, names_only_some_of_very_many_losses) {
  const Outcome outcome{.ends = {{}}, .losses = Texts(100, "full")};
  EXPECT_EQ(report(outcome).size(), 9U);
  EXPECT_EQ(report(outcome).back(), "and to 92 more files");
}

TEST(Report, ranks_that_end_well_on_a_signal_are_a_success) {
  EXPECT_EQ(exit_code({.ends = {{}, {}}, .interrupted_by = SIGTERM}), 0);
}

}  // namespace
}  // namespace paceline::apps
