// SPDX-License-Identifier: Apache-2.0
// Shared optimizers in real processes: what they take of the host's memory, and a rank's death.
#include <sstream>
#include <string>

#include "tests/apps/command.h"

namespace paceline::test {
namespace {

TEST(SharedOptimizerProcesses, need_together_the_parameters_and_the_state_of_one) {
  Command all({"run", "-n", "4", "--", SHARED_OPTIMIZER_PROGRAM, "memory"});
  ASSERT_EQ(all.finish(), net::ExitStatus{}) << all.output() << all.error();
  const auto number = [&](const std::string& word) {
    const std::size_t at = all.output().find(word + " ");
    return at == std::string::npos ? -1 : std::stod(all.output().substr(at + word.size() + 1));
  };
  const double one_rank = number("parameters") + number("state");
  EXPECT_EQ(number("parameters"), 4 * (3 * (2048 * 2048 + 2048) + 2048 * 10 + 10));
  EXPECT_EQ(number("state"), 2 * number("parameters"));
  EXPECT_LE(number("grown"), 1.1 * one_rank) << all.output();
  EXPECT_GE(number("grown"), 0.95 * one_rank) << "not all of it was in memory: " << all.output();
}

TEST(SharedOptimizerProcesses, learn_of_a_rank_that_is_killed_in_a_step) {
  Command all({"run", "-n", "3", "--", SHARED_OPTIMIZER_PROGRAM, "killed"});
  EXPECT_EQ(all.finish().code, 128 + 9);
  std::istringstream lines(all.output());
  int told = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto says = [&](const char* words) { return line.find(words) != std::string::npos; };
    told += says("] caught:") && says("lost rank 1") && says("killed by SIGKILL") ? 1 : 0;
  }
  EXPECT_EQ(told, 2) << all.output();
}

}  // namespace
}  // namespace paceline::test
