// SPDX-License-Identifier: Apache-2.0
// Real processes under `paceline run`: what they compute, and how they learn of each other's end.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

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

Ended run_over(const std::string& link, const std::string& options, const std::string& scenario) {
  return run_command("PACELINE_LINK=" + link + " '" + PACELINE_COMMAND + "' run " + options +
                     " -- '" + RANK_PROGRAM + "' " + scenario + " 2>&1");
}

// Each rank does something in a shell first, which knows it as $RANK.
Ended run_after(const std::string& preparation, const std::string& link) {
  return run_command("PACELINE_LINK=" + link + " '" + PACELINE_COMMAND + "' run -n 3 -- sh -c '" +
                     preparation + "; exec \"$0\" link' '" + RANK_PROGRAM + "' 2>&1");
}

// The moments that ranks have printed after `what`, in milliseconds.
std::vector<long long> moments(const std::string& output, const std::string& what) {
  std::vector<long long> found;
  const std::string words = what + " at ";
  for (std::size_t at = output.find(words); at != std::string::npos;
       at = output.find(words, at + 1))
    found.push_back(std::stoll(output.substr(at + words.size())));
  return found;
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

TEST(Processes, of_one_host_share_memory_unless_told_otherwise) {
  EXPECT_EQ(run_over("", "-n 3", "link").count("link shm; ."), 3);
  EXPECT_EQ(run_over("auto", "-n 3", "link").count("link shm; ."), 3);
  EXPECT_EQ(run_over("shm", "-n 2", "link").count("link shm; ."), 2);
  EXPECT_EQ(run_over("tcp", "-n 2", "link").count("link tcp; PACELINE_LINK is tcp."), 2);
  EXPECT_EQ(run_over("memory", "-n 1", "link").count("link memory; ."), 1);
}

TEST(Processes, get_the_same_bits_over_tcp) {
  const Ended all = run_over("tcp", "-n 3", "bits");
  EXPECT_EQ(all.count("same as threads"), 3) << all.output;
}

TEST(Processes, that_want_different_links_end_with_the_same_error) {
  const Ended all = run_after("test $RANK = 2 && export PACELINE_LINK=tcp", "shm");
  EXPECT_EQ(all.count("] caught: ranks want different links: PACELINE_LINK is shm at rank 0 and "
                      "tcp at rank 2"),
            3)
      << all.output;
}

TEST(Processes, in_different_namespaces_speak_tcp_and_say_why) {
  if (geteuid() != 0) GTEST_SKIP() << "making a namespace needs root";
  const std::string enter =
      "test $RANK != 1 || test \"$IN\" || IN=1 exec unshare --ipc \"$0\" link";
  const Ended all = run_after(enter, "auto");
  EXPECT_EQ(all.count("link tcp; rank 1 is in another ipc namespace (ipc:["), 3) << all.output;
  const Ended refused = run_after(enter, "shm");
  EXPECT_EQ(refused.count("] caught: PACELINE_LINK is shm, but these ranks cannot share memory: "
                          "rank 1 is in another ipc namespace"),
            3)
      << refused.output;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes
TEST(Processes, without_room_for_shared_memory_speak_tcp_and_say_why) {
  const Ended all = run_after("test $RANK = 2 && ulimit -v 1000000", "auto");
  EXPECT_EQ(all.count("link tcp; rank 2 has no memory to share: mapping"), 3) << all.output;
  EXPECT_EQ(all.count("the limit of address space (ulimit -v) is 976 MiB: raise it."), 3)
      << all.output;
}
#endif

TEST(Processes, survivors_name_the_rank_that_was_killed_and_how_within_a_second) {
  for (const char* link : {"shm", "tcp"}) {
    const Ended all = run_over(link, "-n 3", "killed");
    EXPECT_EQ(all.code, 128 + 9) << all.output;
    EXPECT_EQ(all.count("] caught:"), 2) << all.output;
    EXPECT_TRUE(all.says("lost rank 1")) << all.output;
    EXPECT_TRUE(all.says("killed by SIGKILL")) << all.output;
    EXPECT_TRUE(all.says("\"step\"")) << all.output;
    const auto deaths = moments(all.output, "dies");  // the launcher repeats it
    ASSERT_FALSE(deaths.empty()) << all.output;
    const auto ends = moments(all.output, "failed");
    EXPECT_EQ(ends.size(), 2U) << all.output;
    for (const long long end : ends) EXPECT_LT(end - deaths[0], 1000) << all.output;
  }
}

// Every rank ends at a moment of its own, some while they meet. Names of local sockets hold pids.
TEST(Processes, killed_at_any_moment_leave_nothing_behind) {
  const Ended all = run_command(
      "export TORCHELASTIC_RUN_ID=ranks_test-" + std::to_string(getpid()) +
      " PACELINE_LINK=shm PACELINE_AUTH=none MASTER_ADDR=localhost MASTER_PORT=1 GROUP_RANK=0 "
      "WORLD_SIZE=3 LOCAL_WORLD_SIZE=3; unset PACELINE_LAUNCHER PACELINE_SECRET_FD; "
      "exec 2>/dev/null; for round in $(seq 50); do pids=; for r in 0 1 2; do "
      "RANK=$r LOCAL_RANK=$r TORCHELASTIC_RESTART_COUNT=$round '" +
      std::string(RANK_PROGRAM) +
      "' endless >/dev/null & pids=\"$pids $!\"; done; sleep 0.0$((round % 5))$((round % 7)); "
      "kill -9 $pids; wait; for p in $pids; do grep -c \"paceline-shm-$p-\" /proc/net/unix; done; "
      "ls /dev/shm | grep -c paceline; echo round; done | sort | uniq -c");
  EXPECT_TRUE(all.says(" 50 round")) << all.output;
  EXPECT_TRUE(all.says(" 200 0")) << all.output;
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
  EXPECT_TRUE(all.says("there is no scenario 'unknown'; choose one of absent bits endless"))
      << all.output;
}

}  // namespace
