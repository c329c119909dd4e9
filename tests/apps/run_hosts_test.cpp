// SPDX-License-Identifier: Apache-2.0
// `paceline run` while ranks or hosts are missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "paceline/base/error.h"
#include "paceline/comm/secret.h"
#include "paceline/net/host.h"
#include "paceline/net/socket.h"
#include "paceline/store/join.h"
#include "tests/apps/command.h"

namespace paceline::test {
namespace {

TEST(RunHosts, a_connection_with_another_secret_is_told_of_while_ranks_are_missing) {
  Command command(run_shell("2", "echo \"port $MASTER_PORT.\"; exec sleep 600"));
  ASSERT_TRUE(command.wait_for("."));
  const std::string& output = command.output();
  const int port = std::stoi(output.substr(output.find("port ") + 5));
  EXPECT_THROW((void)store::join({.rank = 1,
                                  .world = 2,
                                  .host = "127.0.0.1",
                                  .port = static_cast<std::uint16_t>(port),
                                  .secret = make_secret(),
                                  .algorithm = ""}),
               CommError);
  EXPECT_TRUE(command.wait_for_error("was refused: the secret differs")) << command.error();
  EXPECT_TRUE(
      command.error().starts_with("paceline: still waiting for ranks 0, 1: a connection "
                                  "from 127.0.0.1:"))
      << command.error();
  command.signal(SIGTERM);
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 128 + SIGTERM}));
  EXPECT_EQ(count_of(command.error(), "still waiting"), 1U) << command.error();
}

/// A secret file and a port that was free a moment ago, for launchers that play hosts.
class RunTwoHosts : public testing::Test {
 protected:
  RunTwoHosts() : port_(net::local_port(net::listen_tcp("127.0.0.1", 0))) {
    std::ofstream(secret_) << "a secret of the test, long enough";
    fs::permissions(secret_, fs::perms::owner_read | fs::perms::owner_write);
  }
  ~RunTwoHosts() override { fs::remove(secret_); }

  Texts host(int node, const std::string& ranks, const std::string& script, int nodes = 2) {
    return run_shell(
        ranks, script,
        {"--nnodes", std::to_string(nodes), "--node-rank", std::to_string(node), "--master-addr",
         "127.0.0.1", "--master-port", std::to_string(port_), "--secret-file", secret_});
  }

  std::uint16_t port_;
  std::string secret_ = testing::TempDir() + "paceline-hosts-" + std::to_string(net::process_id());
};

TEST_F(RunTwoHosts, may_start_different_numbers_of_ranks) {
  const std::string say = "echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE";
  Command there(host(1, "2", say));
  Command here(host(0, "1", say));
  EXPECT_EQ(here.finish().code, 0) << here.error();
  EXPECT_EQ(there.finish().code, 0) << there.error();
  EXPECT_EQ(here.output(), "[0] rank 0 of 3, 0 of 1\n");
  EXPECT_NE(there.output().find("[1] rank 1 of 3, 0 of 2\n"), std::string::npos) << there.output();
  EXPECT_NE(there.output().find("[2] rank 2 of 3, 1 of 2\n"), std::string::npos) << there.output();
}

TEST_F(RunTwoHosts, that_disagree_start_no_rank) {
  Command there(host(1, "1", "echo started", 3));
  Command here(host(0, "1", "echo started"));
  EXPECT_EQ(here.finish().code, 1);
  EXPECT_EQ(there.finish().code, 1);
  EXPECT_EQ(here.output() + there.output(), "");
  EXPECT_EQ(here.error(), "paceline: --nnodes differs: 2 on host 0, 3 on host 1\n");
  EXPECT_NE(there.error().find("--nnodes differs: 3 here, 2 there"), std::string::npos)
      << there.error();
}

TEST_F(RunTwoHosts, all_hear_of_a_program_that_one_of_them_lacks) {
  for (const int lacking : {0, 1}) {
    Texts without = host(lacking, "1", "");
    without.resize(without.size() - 3);
    without.emplace_back("/no/such/program");
    Command bad(without);
    Command good(host(1 - lacking, "1", "echo started"));
    EXPECT_EQ(bad.finish().code, 127);
    EXPECT_EQ(good.finish().code, 1);
    EXPECT_EQ(good.output(), "");
    EXPECT_NE(bad.error().find("starting '/no/such/program' failed"), std::string::npos);
    EXPECT_NE(good.error().find("host " + std::to_string(lacking)), std::string::npos);
    EXPECT_NE(good.error().find("starting '/no/such/program' failed"), std::string::npos)
        << good.error();
  }
}

TEST_F(RunTwoHosts, that_cannot_start_and_find_nobody_to_tell_say_both) {
  Texts alone = host(0, "1", "");
  alone.resize(alone.size() - 4);
  alone.insert(alone.end(), {"--connect-timeout", "0.2", "--", "/no/such/program"});
  Command here(alone);
  EXPECT_EQ(here.finish().code, 127);
  EXPECT_NE(here.error().find("starting '/no/such/program' failed"), std::string::npos);
  EXPECT_NE(here.error().find("host 1 did not come within 200 ms"), std::string::npos)
      << here.error();
}

TEST_F(RunTwoHosts, say_what_they_wait_for_and_end_on_a_signal) {
  Command here(host(0, "1", "echo started"));
  EXPECT_TRUE(here.wait_for_error("for host 1 of 2\n")) << here.error();
  here.signal(SIGTERM);
  EXPECT_EQ(here.finish().signal, SIGTERM);
  EXPECT_TRUE(here.all_gone());
  EXPECT_EQ(here.output(), "");
}

TEST_F(RunTwoHosts, that_are_called_by_a_name_of_the_loopback_are_refused) {
  Texts arguments = host(0, "1", "true");
  std::replace(arguments.begin(), arguments.end(), std::string("127.0.0.1"), net::host_name());
  Command here(arguments);
  const net::ExitStatus end = here.finish();
  if (here.error().find("is 127.") == std::string::npos)
    GTEST_SKIP() << "this host's own name is no address of its loopback";
  EXPECT_EQ(end.code, 2);
}

}  // namespace
}  // namespace paceline::test
