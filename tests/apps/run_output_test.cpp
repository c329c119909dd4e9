// SPDX-License-Identifier: Apache-2.0
// Output of the ranks: in log files, and where it cannot be written.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/apps/command.h"

namespace paceline::test {
namespace {

TEST(RunOutput, output_lost_on_a_full_disk_is_no_success) {
  Command command = in_shell("exec \"$@\" >/dev/full", run_shell("2", "echo lost; echo end >&2"));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 1}));
  EXPECT_EQ(count_of(command.error(), "] end\n"), 2U) << command.error();
  EXPECT_EQ(last_line(command.error()),
            "paceline: output of the ranks was lost: cannot write to standard output: "
            "No space left on device");
}

TEST(RunOutput, the_code_of_a_failed_rank_stands_though_output_was_lost) {
  Command command = in_shell("exec \"$@\" >/dev/full", run_shell("1", "echo lost; exit 7"));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 7}));
  EXPECT_NE(command.error().find("output of the ranks was lost"), std::string::npos)
      << command.error();
}

TEST(RunOutput, a_full_disk_without_output_is_a_success) {
  Command command = in_shell("exec \"$@\" >/dev/full", run_shell("1", "true"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
}

// Each rank would write for ever, but for the SIGTERM that it gets.
TEST(RunOutput, a_reader_that_goes_away_ends_the_job_in_good_order) {
  Command command = in_shell(
      "{ \"$@\"; echo code $? >&2; } | head -n 1",
      run_shell("2", "trap 'echo saved $RANK >&2; exit 0' TERM; while :; do echo line; done"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  for (const char* words :
       {"paceline: nobody reads our output any more", "[0] saved 0", "[1] saved 1", "code 1\n",
        "lost: cannot write to standard output: Broken pipe"})
    EXPECT_NE(command.error().find(words), std::string::npos) << words << command.error();
  EXPECT_TRUE(command.all_gone());
}

TEST(RunOutput, a_reader_that_goes_away_gives_141_if_the_ranks_die_of_it) {
  Command command = in_shell("{ \"$@\"; echo code $? >&2; } | head -n 1",
                             run_shell("2", "while :; do echo line; done"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(last_line(command.error()), "code 141") << command.error();
  EXPECT_NE(command.error().find("stopped by SIGPIPE"), std::string::npos) << command.error();
}

TEST(RunOutput, log_files_hold_what_each_rank_wrote) {
  const Folder folder;
  Command command(run_shell("2", "printf 'a\\rb %s' $RANK; echo oops >&2",
                            {"--log-dir", folder.path() + "/logs"}));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(folder.read("logs/rank1.out"), "a\rb 1");
  EXPECT_EQ(folder.read("logs/rank0.err"), "oops\n");
}

TEST(RunOutput, output_lost_in_a_log_file_is_no_success) {
  const Folder folder;
  fs::create_symlink("/dev/full", folder.path() + "/rank1.out");
  Command command(run_shell("2", "echo whole $RANK", {"--log-dir", folder.path()}));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 1}));
  EXPECT_EQ(command.error(), "paceline: output of the ranks was lost: cannot write to '" +
                                 folder.path() + "/rank1.out': No space left on device\n");
  EXPECT_EQ(folder.read("rank0.out"), "whole 0\n");
  EXPECT_NE(command.output().find("[1] whole 1\n"), std::string::npos) << command.output();
}

}  // namespace
}  // namespace paceline::test
