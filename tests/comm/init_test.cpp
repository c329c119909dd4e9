// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/init.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <map>
#include <string>

#include "paceline/base/error.h"
#include "paceline/net/socket.h"

namespace paceline {
namespace {

/// What rank 1 of 2 ends with if it is told to meet at `address`:`port`.
std::string failure_at(const std::string& address, const std::string& port) {
  for (const char* name : {"PACELINE_SECRET_FD", "PACELINE_SECRET_FILE"}) ::unsetenv(name);
  const std::map<std::string, std::string> variables{{"PACELINE_LAUNCHER", "rank 1 of 2"},
                                                     {"RANK", "1"},
                                                     {"WORLD_SIZE", "2"},
                                                     {"LOCAL_RANK", "0"},
                                                     {"LOCAL_WORLD_SIZE", "1"},
                                                     {"GROUP_RANK", "1"},
                                                     {"GROUP_WORLD_SIZE", "2"},
                                                     {"MASTER_ADDR", address},
                                                     {"MASTER_PORT", port},
                                                     {"PACELINE_AUTH", "none"}};
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  try {
    (void)init({.connect_timeout = std::chrono::milliseconds(100)});
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), CommErrc::kConnectFailed);
    return error.what();
  }
  ADD_FAILURE() << "no CommError";
  return {};
}

TEST(Init, an_unknown_host_is_named_with_its_variables_and_the_reason) {
  const std::string text = failure_at("no such host", "29500");
  EXPECT_TRUE(
      text.starts_with("rank 1: the store at no such host:29500 (MASTER_ADDR, MASTER_PORT) "
                       "cannot be reached within 100 ms: looking up host 'no such host' "
                       "failed: "))
      << text;
  EXPECT_TRUE(text.ends_with("; check the name, or give an address")) << text;
}

TEST(Init, an_address_where_nobody_listens_is_named_with_its_variables) {
  net::Fd closed = net::listen_tcp("127.0.0.1", 0);
  const std::string port = std::to_string(net::local_port(closed));
  closed.reset();
  EXPECT_EQ(failure_at("127.0.0.1", port),
            "rank 1: the store at 127.0.0.1:" + port +
                " (MASTER_ADDR, MASTER_PORT) cannot be reached within 100 ms: connecting to "
                "127.0.0.1:" +
                port +
                " failed: Connection refused; is the other side running, and reachable from this "
                "host?");
}

TEST(LocalRanks, say_what_joins_them) {
  EXPECT_EQ(make_local_ranks(2, {.link = LocalLink::kMemory})[0].link(), "memory");
  EXPECT_EQ(make_local_ranks(2, {.link = LocalLink::kShm})[1].link(), "shm");
  EXPECT_EQ(make_local_ranks(2, {.link = LocalLink::kTcp})[0].link(), "tcp");
  EXPECT_EQ(make_local_ranks(2)[0].link_reason(), "");
}

TEST(LocalRanks, that_cannot_share_memory_say_why) {
  EXPECT_THROW((void)make_local_ranks(1025, {.link = LocalLink::kShm}), UsageError);
  EXPECT_THROW((void)make_local_ranks(2, {.link = LocalLink::kShm, .link_capacity_bytes = 0}),
               UsageError);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  try {
    (void)make_local_ranks(2, {.link = LocalLink::kShm});
    ADD_FAILURE() << "no CommError";
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), CommErrc::kConnectFailed);
    EXPECT_NE(std::string(error.what()).find("ulimit -f"), std::string::npos) << error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
}

}  // namespace
}  // namespace paceline
