// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/guardian.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "paceline/net/child.h"
#include "paceline/net/poll.h"
#include "paceline/net/stream.h"

namespace paceline::net {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

std::vector<std::string> environment() { return {std::string("PATH=") + std::getenv("PATH")}; }

/// Reads until every holder of the other end is gone. @return whether that came in time.
bool everybody_let_go(const Fd& read_end) {
  std::array<std::byte, 64> into{};
  while (wait_readable(read_end, soon()))
    if (try_read(read_end, into).closed) return true;
  return false;
}

/// A process that starts a shell with a grandchild under a guardian and is then killed. All of them
/// hold the pipe's write end.
[[noreturn]] void be_a_launcher(const Fd& write_end, const std::string& script) {
  Job job;
  Guardian guardian(job);
  std::vector<std::string> variables = environment();
  variables.push_back("PACELINE_JOB=" + std::string(job.id()));
  const Child child = spawn("sh", {"-c", script}, variables, {.inherit = {&write_end}});
  guardian.watch(child.pid());
  Child& running = const_cast<Child&>(child);
  (void)wait_readable(running.standard_output(), soon());
  ::kill(::getpid(), SIGKILL);
  ::_exit(1);
}

/// Runs `script` in a launcher that is killed once a line is written.
void expect_all_gone(const std::string& script) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const pid_t launcher = ::fork();
  if (launcher == 0) be_a_launcher(write_end, script);
  write_end.reset();
  int status = 0;
  ASSERT_EQ(::waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(everybody_let_go(read_end));
}

TEST(Guardian, kills_grandchildren_of_a_killed_process) {
  expect_all_gone("sleep 600 & echo started; wait");
}

TEST(Guardian, kills_grandchildren_in_a_session_of_their_own) {
  expect_all_gone("setsid sh -c 'echo started; exec sleep 600' & wait");
}

TEST(Guardian, kills_grandchildren_with_another_environment_by_their_group) {
  expect_all_gone("env -i PATH=$PATH sh -c 'echo started; sleep 600' & wait");
}

TEST(Guardian, holds_none_of_the_parents_descriptors) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  Job job;
  const Guardian guardian(job);
  write_end.reset();
  EXPECT_TRUE(everybody_let_go(read_end));
}

TEST(Guardian, leaves_the_job_alone_once_it_is_dismissed) {
  Job job;
  Child child = spawn("sleep", {"600"}, {"PACELINE_JOB=" + std::string(job.id())});
  {
    Guardian guardian(job);
    guardian.watch(child.pid());
  }
  EXPECT_FALSE(child.try_wait());
  child.signal(SIGTERM);
  EXPECT_EQ(child.wait(soon()), (ExitStatus{.signal = SIGTERM}));
}

}  // namespace
}  // namespace paceline::net
