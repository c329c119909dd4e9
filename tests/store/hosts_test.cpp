// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/hosts.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/net/socket.h"
#include "paceline/store/channel.h"
#include "paceline/store/half_open.h"
#include "tests/store/meeting.h"

namespace paceline::store {
namespace {

using test::make_secret;

struct Outcome {
  std::optional<Layout> layout;
  std::optional<CommError> error;
  std::vector<std::string> told;
  [[nodiscard]] std::string text() const { return error ? error->what() : "met"; }
};

/// Hosts as threads; host 0 listens on a free port of the loopback.
class Hosts : public testing::Test {
 protected:
  [[nodiscard]] HostOptions host(int node, int nodes, int ranks) const {
    return {.node = node,
            .nodes = nodes,
            .ranks = ranks,
            .host = "127.0.0.1",
            .port = net::local_port(listener_),
            .secret = secret_,
            .connect_timeout = std::chrono::seconds(60)};
  }

  /// Each host with its options, at once. Host 0 is the one that listens, if there is one.
  std::vector<Outcome> meet(std::vector<HostOptions> hosts) {
    std::vector<Outcome> outcomes(hosts.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < hosts.size(); ++i)
      threads.emplace_back([this, &mine = hosts[i], &outcome = outcomes[i]] {
        mine.tell = [&outcome](const std::string& text) { outcome.told.push_back(text); };
        try {
          outcome.layout = mine.node == 0 ? receive_hosts(listener_, mine) : report_to_host_0(mine);
        } catch (const CommError& error) {
          outcome.error = error;
        }
      });
    threads.clear();
    return outcomes;
  }

  Secret secret_ = make_secret();
  net::Fd listener_ = net::listen_tcp("127.0.0.1", 0);
};

TEST_F(Hosts, number_their_ranks_by_host) {
  const auto all = meet({host(2, 3, 4), host(0, 3, 2), host(1, 3, 1)});
  ASSERT_TRUE(all[0].layout && all[1].layout && all[2].layout) << all[0].text() << all[1].text();
  EXPECT_EQ(*all[0].layout, (Layout{.world = 7, .first_rank = 3}));
  EXPECT_EQ(*all[1].layout, (Layout{.world = 7, .first_rank = 0}));
  EXPECT_EQ(*all[2].layout, (Layout{.world = 7, .first_rank = 2}));
}

TEST_F(Hosts, meet_without_a_secret_if_all_agree) {
  secret_ = {};
  const auto all = meet({host(0, 2, 1), host(1, 2, 1)});
  EXPECT_TRUE(all[0].layout && all[1].layout) << all[0].text() << all[1].text();
}

TEST_F(Hosts, that_disagree_about_their_number_all_hear_of_it) {
  const auto all = meet({host(0, 2, 1), host(1, 3, 1)});
  EXPECT_EQ(all[0].text(), "--nnodes differs: 2 on host 0, 3 on host 1");
  EXPECT_NE(all[1].text().find("--nnodes differs: 3 here, 2 there"), std::string::npos)
      << all[1].text();
}

TEST_F(Hosts, that_say_the_same_number_all_hear_of_it) {
  const auto all = meet({host(0, 3, 1), host(1, 3, 1), host(1, 3, 1)});
  for (const Outcome& outcome : all)
    EXPECT_NE(outcome.text().find("--node-rank 1 is taken twice"), std::string::npos)
        << outcome.text();
}

TEST_F(Hosts, with_too_many_ranks_all_hear_of_it) {
  const auto all = meet({host(0, 2, 65535), host(1, 2, 1)});
  for (const Outcome& outcome : all)
    EXPECT_EQ(outcome.text(), "all hosts together start 65536 ranks, more than 65535");
}

TEST_F(Hosts, that_never_come_are_named_on_those_that_did) {
  auto waiting = host(0, 4, 1);
  waiting.connect_timeout = std::chrono::milliseconds(300);
  const auto all = meet({waiting, host(2, 4, 1)});
  for (const Outcome& outcome : all) {
    EXPECT_NE(outcome.text().find("hosts 1, 3 did not come within 300 ms"), std::string::npos)
        << outcome.text();
    EXPECT_NE(outcome.text().find("127.0.0.1:"), std::string::npos) << outcome.text();
  }
}

TEST_F(Hosts, with_another_secret_are_turned_away_and_host_0_is_told_of_it) {
  auto stranger = host(1, 2, 1);
  stranger.secret = make_secret();
  auto waiting = host(0, 2, 1);
  waiting.connect_timeout = std::chrono::milliseconds(500);
  const auto all = meet({waiting, stranger});
  EXPECT_NE(all[1].text().find("the secret differs"), std::string::npos) << all[1].text();
  ASSERT_EQ(all[0].told.size(), 1U);
  EXPECT_NE(all[0].told[0].find("still waiting for host 1: a connection from 127.0.0.1:"),
            std::string::npos)
      << all[0].told[0];
  EXPECT_NE(all[0].told[0].find("the secret differs"), std::string::npos) << all[0].told[0];
}

TEST_F(Hosts, say_where_they_looked_for_host_0) {
  auto lost = host(1, 2, 1);
  lost.connect_timeout = std::chrono::milliseconds(100);
  listener_.reset();
  const auto all = meet({lost});
  EXPECT_NE(all[0].text().find(fmt::format("host 0 at 127.0.0.1:{} (--master-addr, --master-port) "
                                           "cannot be reached within 100 ms",
                                           lost.port)),
            std::string::npos)
      << all[0].text();
}

TEST_F(Hosts, that_leave_may_come_again) {
  const HostOptions brief = host(1, 3, 1);
  const Deadline soon = Deadline::after(std::chrono::seconds(30));
  HalfOpen half(net::connect_tcp(brief.host, brief.port, soon),
                {.purpose = Purpose::kHosts, .rank = 1, .world = 3, .secret = secret_}, soon);
  std::jthread leaver([&] {
    ASSERT_EQ(complete(half), HalfOpen::Outcome::kAccepted);
    Channel channel(half.take_socket(), half.handshake().session_key(), Side::kInitiator);
    channel.out.push(HostReport{.ranks = 1, .host = "brief"});
    channel.out.flush(channel.socket);
  });
  std::jthread rest([&] {
    leaver.join();
    const auto others = meet({host(1, 3, 5), host(2, 3, 1)});
    EXPECT_TRUE(others[0].layout && others[1].layout) << others[0].text();
  });
  const auto all = meet({host(0, 3, 1)});
  ASSERT_TRUE(all[0].layout) << all[0].text();
  EXPECT_EQ(all[0].layout->world, 7);
  EXPECT_EQ(all[0].told, std::vector<std::string>{"host 1 (brief) has left again"});
  rest.join();
}

TEST_F(Hosts, that_come_too_late_learn_that_the_job_has_started) {
  auto late = host(1, 2, 1);
  const Server server(std::move(listener_), {.world = 2, .secret = secret_});
  const auto all = meet({late});
  EXPECT_NE(all[0].text().find("its job has started already"), std::string::npos) << all[0].text();
}

}  // namespace
}  // namespace paceline::store
