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

TEST(RunEnd, a_signal_that_was_ignored_from_the_start_stays_ignored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);  // the launcher inherits it
  Command command(run_shell("1", "echo up; exec sleep 600"));
  std::signal(SIGHUP, before);
  ASSERT_TRUE(command.wait_for("up"));
  command.signal(SIGHUP);
  command.signal(SIGTERM);
  EXPECT_EQ(command.finish().code, 128 + SIGTERM);
  EXPECT_NE(command.error().find("SIGTERM is passed on"), std::string::npos) << command.error();
  EXPECT_EQ(command.error().find("SIGHUP"), std::string::npos) << command.error();
}

TEST(RunEnd, ranks_that_do_not_end_are_said_to_be_killed) {
  Command command(run_shell("2", "trap '' TERM; [ $RANK = 1 ] || exit 4; while :; do sleep 1; done",
                            {"--grace", "0.1"}));
  EXPECT_EQ(command.finish().code, 4);
  EXPECT_NE(command.error().find("not all ranks have ended within 0.1 s: killing them"),
            std::string::npos)
      << command.error();
}

TEST(RunEnd, what_a_rank_left_behind_ends_with_the_job) {
  Command command(run_shell("2", "sleep 600 & exit 0"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_TRUE(command.all_gone());
}

/// Starts a process in a session of its own, which then tells the shell by SIGUSR1.
std::string with_daemon(const std::string& then) {
  return "trap '" + then +
         "' USR1; setsid sh -c 'kill -USR1 '$$'; exec sleep 600' & "
         "while :; do wait; done";
}

TEST(RunEnd, what_has_left_its_session_ends_with_the_job) {
  Command command(run_shell("2", with_daemon("exit 0")));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_TRUE(command.all_gone());
}

TEST(RunEnd, what_has_left_its_session_ends_with_a_job_that_fails) {
  Command command(run_shell("2", with_daemon("exit 5")));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 5}));
  EXPECT_TRUE(command.all_gone());
}

TEST(RunEnd, what_has_left_its_session_ends_when_the_job_is_interrupted) {
  Command command(run_shell("1", with_daemon("echo ready")));
  ASSERT_TRUE(command.wait_for("ready"));
  command.signal(SIGINT);
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 130}));
  EXPECT_TRUE(command.all_gone());
}

TEST(RunEnd, what_has_left_its_session_ends_with_a_killed_launcher) {
  Command command(run_shell("2", with_daemon("echo ready $RANK")));
  ASSERT_TRUE(command.wait_for("ready 0") && command.wait_for("ready 1"));
  command.signal(SIGKILL);
  EXPECT_TRUE(command.all_gone());
}

TEST(RunEnd, a_job_in_a_job_ends_with_the_outer_one) {
  Texts inner{"--", PACELINE_COMMAND};
  const Texts words = run_shell("1", with_daemon("echo ready"));
  inner.insert(inner.end(), words.begin(), words.end());
  Texts arguments{"run", "-n", "1"};
  arguments.insert(arguments.end(), inner.begin(), inner.end());
  Command command(arguments);
  ASSERT_TRUE(command.wait_for("[0] [0] ready"));
  command.signal(SIGKILL);
  EXPECT_TRUE(command.all_gone());
}

}  // namespace
}  // namespace paceline::test
