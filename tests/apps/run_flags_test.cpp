// SPDX-License-Identifier: Apache-2.0
// The command line of `paceline run`.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "paceline/net/socket.h"
#include "tests/apps/command.h"

namespace paceline::test {
namespace {

TEST(RunFlags, wrong_flags_are_named) {
  expect_usage_error(run_shell("0", "true"), "-n 0");
  expect_usage_error({"run", "--", "true"},
                     "paceline: --nproc-per-node is required, see paceline run");
  expect_usage_error({"run", "-n", "2"}, "after --");
  expect_usage_error(run_shell("1", "true", {"--rocket"}), "--rocket, see paceline run --help");
  expect_usage_error({"run", "-n", "1", "--grace", "--", "true"}, "paceline: --grace: ");
  expect_usage_error({"launch"},
                     "'launch' is neither an option nor a subcommand, see paceline --help");
  expect_usage_error({}, "paceline: A subcommand is required, see paceline --help");
  expect_usage_error({"run", "-n", "1", "--", ""}, "the program's name is empty");
  expect_usage_error(run_shell("1", "true", {"--nnodes", "2"}), "--master-addr");
  expect_usage_error(run_shell("1", "true", {"--log-dir", "/proc/no"}), "--log-dir");
}

TEST(RunFlags, what_is_no_number_is_named_with_its_flag) {
  const std::string whole = ": must be a whole number, see paceline run --help\n";
  expect_usage_error(run_shell("abc", "true"), "paceline: -n abc" + whole);
  expect_usage_error(run_shell("1.5", "true"), "paceline: -n 1.5" + whole);
  expect_usage_error(run_shell("", "true"), "paceline: -n ''" + whole);
  for (const std::string flag : {"--nnodes", "--node-rank", "--master-port"})
    expect_usage_error(run_shell("1", "true", {flag, "x"}), "paceline: " + flag + " x" + whole);
  for (const std::string flag : {"--connect-timeout", "--grace"})
    expect_usage_error(run_shell("1", "true", {flag, "x"}),
                       "paceline: " + flag + " x: must be a number, see paceline run --help\n");
}

TEST(RunFlags, a_program_without_the_mark_before_it_is_told_of_the_mark) {
  expect_usage_error({"run", "-n", "2", "./train"}, "./train; write the program after --");
}

const Texts kTwoHosts{"--nnodes",      "2", "--node-rank",       "1",  "--master-addr", "127.0.0.1",
                      "--master-port", "1", "--connect-timeout", "0.1"};

Texts two_hosts(Texts more) {
  Texts flags = kTwoHosts;
  flags.insert(flags.end(), more.begin(), more.end());
  return run_shell("1", "true", flags);
}

/// Nothing is wrong with the flags: the launcher looks for host 0, where nobody listens.
void expect_accepted(Command command) {
  EXPECT_EQ(command.finish().code, 1);
  EXPECT_NE(command.error().find("host 0 at 127.0.0.1:1 (--master-addr, --master-port) cannot be "
                                 "reached within 100 ms"),
            std::string::npos)
      << command.error();
}

TEST(RunFlags, several_hosts_need_a_secret_or_a_word_to_do_without) {
  expect_usage_error(two_hosts({}), "--secret-file");
  expect_accepted(Command(two_hosts({}), {"PACELINE_AUTH=none"}));
}

TEST(RunFlags, a_secret_file_that_is_missing_or_open_to_others_is_named) {
  const Folder folder;
  expect_usage_error(two_hosts({"--secret-file", folder.path() + "/none"}),
                     folder.path() + "/none");
  const std::string open =
      folder.file("open", std::string(40, 's'), kPrivate | fs::perms::others_read);
  expect_usage_error(two_hosts({"--secret-file", open}), "0604");
  const std::string good = folder.file("good", std::string(40, 's'), kPrivate);
  expect_usage_error(two_hosts({"--secret-file", good}), "PACELINE_AUTH", {"PACELINE_AUTH=none"});
  expect_accepted(Command(two_hosts({"--secret-file", good})));
}

TEST(RunFlags, a_port_in_use_names_the_flag) {
  const net::Fd taken = net::listen_tcp("127.0.0.1", 0);
  const std::string port = std::to_string(net::local_port(taken));
  expect_usage_error(run_shell("1", "true", {"--master-port", port}), "--master-port");
}

TEST(RunFlags, a_log_file_that_cannot_be_made_is_named_with_the_reason) {
  const Folder folder;
  fs::create_directory(folder.path() + "/rank0.out");
  expect_usage_error(run_shell("1", "true", {"--log-dir", folder.path()}),
                     folder.path() + "/rank0.out' failed: Is a directory");
  expect_usage_error(run_shell("1", "true", {"--log-dir", ""}), "--log-dir is empty");
}

TEST(RunFlags, help_and_version_are_a_success) {
  Command help({"run", "--help"});
  EXPECT_EQ(help.finish(), net::ExitStatus{});
  EXPECT_NE(help.output().find("--nnodes"), std::string::npos);
  Command version({"--version"});
  EXPECT_EQ(version.finish(), net::ExitStatus{});
}

}  // namespace
}  // namespace paceline::test
