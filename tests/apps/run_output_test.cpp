// SPDX-License-Identifier: Apache-2.0
// Output of the ranks: in log files, and where it cannot be written.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/apps/command.h"

namespace paceline::test {
namespace {

TEST(RunOutput, log_files_hold_what_each_rank_wrote) {
  const Folder folder;
  Command command(run_shell("2", "printf 'a\\rb %s' $RANK; echo oops >&2",
                            {"--log-dir", folder.path() + "/logs"}));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(folder.read("logs/rank1.out"), "a\rb 1");
  EXPECT_EQ(folder.read("logs/rank0.err"), "oops\n");
}

}  // namespace
}  // namespace paceline::test
