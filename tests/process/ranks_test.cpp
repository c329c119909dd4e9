// SPDX-License-Identifier: Apache-2.0
// Real processes under `paceline run`: what they compute, and how they learn of each other's end.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

struct Ended {
  int code = -1;
  std::string output;

  [[nodiscard]] bool says(const std::string& words) const {
    return output.find(words) != std::string::npos;
  }
  [[nodiscard]] int count(const std::string& words) const {
    int n = 0;
    for (std::size_t at = output.find(words); at != std::string::npos;
         at = output.find(words, at + 1)) {
      ++n;
    }
    return n;
  }
};

Ended run_command(const std::string& command) {
  Ended result;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer{};
  while (const std::size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

Ended run(const std::string& options, const std::string& scenario) {
  return run_command(std::string("'") + PACELINE_COMMAND + "' run " + options + " -- '" +
                     RANK_PROGRAM + "' " + scenario + " 2>&1");
}

// As torchrun starts them on one host: rank 0 serves the meeting place itself, which has a name of
// this test's own. Nobody ends the others when one fails.
Ended run_as_torchrun(int world, const std::string& scenario) {
  const std::string n = std::to_string(world);
  return run_command(
      "export TORCHELASTIC_RUN_ID=ranks_test-" + std::to_string(getpid()) +
      " PACELINE_AUTH=none MASTER_ADDR=localhost MASTER_PORT=1 GROUP_RANK=0 WORLD_SIZE=" + n +
      " LOCAL_WORLD_SIZE=" + n + "; unset PACELINE_LAUNCHER PACELINE_SECRET_FD; " +
      "for r in $(seq 0 " + std::to_string(world - 1) + "); do RANK=$r LOCAL_RANK=$r '" +
      RANK_PROGRAM + "' " + scenario + " 2>&1 & done; wait");
}

TEST(Processes, get_the_bits_that_threads_get) {
  for (const char* n : {"1", "2", "3", "5"}) {
    const Ended all = run(std::string("-n ") + n, "bits");
    EXPECT_EQ(all.code, 0) << all.output;
    EXPECT_EQ(all.count("same as threads"), std::stoi(n)) << all.output;
  }
}

TEST(Processes, survivors_name_the_rank_that_was_killed_and_how) {
  const Ended all = run("-n 3", "killed");
  EXPECT_EQ(all.code, 128 + 9) << all.output;
  EXPECT_EQ(all.count("] caught:"), 2) << all.output;
  EXPECT_TRUE(all.says("lost rank 1")) << all.output;
  EXPECT_TRUE(all.says("killed by SIGKILL")) << all.output;
  EXPECT_TRUE(all.says("\"step\"")) << all.output;
}

TEST(Processes, a_stopped_rank_is_named_by_the_others_and_by_the_launcher) {
  const Ended all = run("-n 3", "stopped");
  EXPECT_EQ(all.code, 3) << all.output;
  EXPECT_EQ(all.count("] caught:"), 3) << all.output;
  EXPECT_TRUE(all.says("stood still for 1 s; rank 1 does not answer")) << all.output;
  EXPECT_TRUE(all.says("paceline: rank 1 is stopped by SIGSTOP")) << all.output;
}

TEST(Processes, under_a_foreign_launcher_get_the_bits_that_threads_get) {
  const Ended all = run_as_torchrun(3, "bits");
  EXPECT_EQ(all.count("same as threads"), 3) << all.output;
}

TEST(Processes, survivors_name_the_rank_that_served_the_store_and_was_killed) {
  for (int round = 0; round < 5; ++round) {
    const Ended all = run_as_torchrun(3, "killed_0");
    EXPECT_EQ(all.count("caught:"), 2) << all.output;
    EXPECT_EQ(all.count("lost rank 0"), 2) << all.output;
  }
}

TEST(Processes, a_rank_that_leaves_early_is_named) {
  const Ended all = run("-n 3", "leaves_early");
  EXPECT_EQ(all.code, 3) << all.output;
  EXPECT_EQ(all.count("] caught:"), 2) << all.output;
  EXPECT_TRUE(all.says("lost rank 1")) << all.output;
}

TEST(Processes, different_counts_end_every_rank_with_both_sides) {
  const Ended all = run("-n 3", "mismatch");
  EXPECT_EQ(all.code, 3) << all.output;
  EXPECT_EQ(all.count("] caught:"), 3) << all.output;
  EXPECT_GE(all.count("f32[100]"), 3) << all.output;
  EXPECT_GE(all.count("f32[101]"), 3) << all.output;
}

TEST(Processes, a_rank_that_aborts_tells_the_others_why) {
  const Ended all = run("-n 3", "throws");
  EXPECT_EQ(all.code, 3) << all.output;
  EXPECT_GE(all.count("rank 1 aborted: the loss is NaN"), 2) << all.output;
}

TEST(Processes, a_rank_that_never_comes_is_named_at_the_connect_timeout) {
  const Ended all = run("-n 3 --connect-timeout 2", "absent");
  EXPECT_EQ(all.code, 3) << all.output;
  EXPECT_TRUE(all.says("caught:")) << all.output;
  EXPECT_TRUE(all.says("rank 1")) << all.output;
}

TEST(RankProgram, names_the_scenarios_that_it_knows) {
  const Ended all = run("-n 1", "unknown");
  EXPECT_EQ(all.code, 3) << all.output;
  EXPECT_TRUE(all.says("there is no scenario 'unknown'; choose one of absent bits")) << all.output;
}

}  // namespace
