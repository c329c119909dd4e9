// SPDX-License-Identifier: Apache-2.0
// What `paceline run` leaves behind: no process, however it ends and wherever that has gone.
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "tests/apps/command.h"

namespace paceline::test {
namespace {

TEST(RunEnd, a_killed_launcher_leaves_no_process) {
  Command command(run_shell("2", "sleep 600 & echo ready $RANK; wait"));
  ASSERT_TRUE(command.wait_for("ready 0") && command.wait_for("ready 1"));
  command.signal(SIGKILL);
  EXPECT_TRUE(command.all_gone());
}

TEST(RunEnd, what_a_rank_left_behind_ends_with_the_job) {
  Command command(run_shell("2", "sleep 600 & exit 0"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_TRUE(command.all_gone());
}

}  // namespace
}  // namespace paceline::test
