// SPDX-License-Identifier: Apache-2.0
// `paceline run` as a user sees it: real processes, exit codes, the last words on standard error.
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "tests/apps/command.h"

namespace paceline::test {
namespace {

TEST(Run, a_failing_rank_gives_its_code_and_is_the_last_word) {
  const auto start = Clock::now();
  Command command(run_shell("3", "exit $((RANK==1?7:0))"));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 7}));
  EXPECT_EQ(last_line(command.error()),
            "paceline: rank 1 of 3 failed first: it exited with code 7");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST(Run, a_crash_is_named_by_its_signal) {
  Command command(run_shell("2", "kill -SEGV $$"));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 139}));
  EXPECT_NE(last_line(command.error()).find("SIGSEGV"), std::string::npos) << command.error();
}

TEST(Run, all_succeed_silently_and_each_has_its_rank) {
  Command command(run_shell("3",
                            "echo rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of "
                            "$LOCAL_WORLD_SIZE, host $GROUP_RANK at $MASTER_ADDR"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(command.error(), "");
  for (const char* rank : {"0", "1", "2"}) {
    const std::string line = std::string("[") + rank + "] rank " + rank + " of 3, local " + rank +
                             " of 3, host 0 at 127.0.0.1\n";
    EXPECT_NE(command.output().find(line), std::string::npos) << command.output();
  }
}

TEST(Run, lines_of_many_ranks_never_mix) {
  const std::string word(300, 'x');
  Command command(run_shell("4", "i=0; while [ $i -lt 200 ]; do printf 'half " + word +
                                     "'; echo \" whole $RANK\"; i=$((i+1)); done"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  for (const char* rank : {"0", "1", "2", "3"})
    EXPECT_EQ(count_of(command.output(),
                       std::string("[") + rank + "] half " + word + " whole " + rank + "\n"),
              200U);
}

TEST(Run, standard_error_stays_standard_error) {
  Command command(run_shell("1", "echo out; echo err >&2"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(command.output(), "[0] out\n");
  EXPECT_EQ(command.error(), "[0] err\n");
}

TEST(Run, progress_without_a_terminal_is_only_its_last_state) {
  Command command(run_shell("1", "printf '10%%\\r20%%\\r'; printf 'done\\nlast'"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(command.output(), "[0] done\n[0] last\n");
}

TEST(Run, shows_the_last_lines_of_the_rank_that_failed) {
  Command command(
      run_shell("2", "[ $RANK = 0 ] && exec sleep 600; seq 1 50; echo bad luck >&2; exit 3"));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 3}));
  EXPECT_NE(command.error().find("  | bad luck\n"), std::string::npos) << command.error();
  EXPECT_EQ(command.error().find("  | 40\n"), std::string::npos) << command.error();
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, ranks_that_ignore_sigterm_are_killed_after_the_grace_with_all_they_started) {
  Command command(
      run_shell("2", "[ $RANK = 1 ] && exit 5; trap '' TERM; sleep 600 & sleep 600; sleep 600",
                {"--grace", "0.2"}));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 5}));
  EXPECT_NE(command.error().find("rank 0 was killed by SIGKILL"), std::string::npos)
      << command.error();
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, an_interrupt_is_passed_on_and_leaves_nobody) {
  Command command(
      run_shell("2", "trap 'echo farewell $RANK; exit 0' INT; echo ready $RANK; sleep 600 & wait"));
  ASSERT_TRUE(command.wait_for("ready 0") && command.wait_for("ready 1"));
  command.signal(SIGINT);
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_NE(command.output().find("[1] farewell 1"), std::string::npos) << command.output();
  EXPECT_NE(last_line(command.error()).find("SIGINT"), std::string::npos) << command.error();
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, an_interrupt_that_kills_the_ranks_gives_130) {
  Command command(run_shell("2", "echo ready $RANK; exec sleep 600"));
  ASSERT_TRUE(command.wait_for("ready 0") && command.wait_for("ready 1"));
  command.signal(SIGINT);
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 130}));
}

TEST(Run, a_second_interrupt_kills) {
  Command command(
      run_shell("1", "trap 'echo got it' INT; echo ready; while :; do sleep 600 & wait; done"));
  ASSERT_TRUE(command.wait_for("ready"));
  command.signal(SIGINT);
  ASSERT_TRUE(command.wait_for("got it"));
  command.signal(SIGINT);
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 130}));
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, a_user_signal_is_only_passed_on) {
  Command command(run_shell(
      "1",
      "trap 'echo stop requested; exit 0' USR1; echo ready; while :; do sleep 600 & wait; done"));
  ASSERT_TRUE(command.wait_for("ready"));
  command.signal(SIGUSR1);
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_NE(command.output().find("stop requested"), std::string::npos);
  EXPECT_EQ(command.error(), "");
}

TEST(Run, a_program_that_is_not_there_is_named) {
  Command command({"run", "-n", "2", "--", "./no-such-program"});
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 127}));
  EXPECT_NE(last_line(command.error()).find("./no-such-program"), std::string::npos)
      << command.error();
}

TEST(Run, a_file_that_may_not_run_is_named) {
  const Folder folder;
  const std::string file = folder.file("data", "text", kPrivate);
  Command command({"run", "-n", "2", "--", file});
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 126}));
  EXPECT_NE(last_line(command.error()).find(file), std::string::npos) << command.error();
}

TEST(Run, arguments_reach_the_program_as_they_are) {
  Command command({"run", "-n", "1", "--", "sh", "-c", "printf '<%s>' \"$@\"", "sh", "[1,2]", "--",
                   "-n", "", "a b", "--help"});
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(command.output(), "[0] <[1,2]><--><-n><><a b><--help>\n");
}

}  // namespace
}  // namespace paceline::test
