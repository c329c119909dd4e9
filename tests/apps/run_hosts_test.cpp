// SPDX-License-Identifier: Apache-2.0
// `paceline run` while ranks or hosts are missing.
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/comm/secret.h"
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

}  // namespace
}  // namespace paceline::test
