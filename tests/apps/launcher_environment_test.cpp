// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "paceline/comm/environment.h"
#include "paceline/comm/secret.h"

namespace paceline::apps {
namespace {

using Variables = std::map<std::string, std::string>;

RunOptions second_of_two_hosts() {
  RunOptions options;
  options.ranks = 3;
  options.nodes = 2;
  options.node_rank = 1;
  options.connect_timeout = std::chrono::milliseconds(2500);
  return options;
}

Meeting meeting_with_secret() {
  Meeting meeting;
  meeting.address = "node0";
  meeting.port = 4711;
  meeting.layout = {.world = 6, .first_rank = 3};
  meeting.secret_fd = hand_down(make_secret());
  return meeting;
}

Variables make(const std::vector<std::string>& base,
               const RunOptions& options,
               const Meeting& meeting,
               std::size_t columns = 0) {
  Variables result;
  for (const std::string& entry : rank_environment(base, options, meeting, 2, columns)) {
    const std::size_t equals = entry.find('=');
    result[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return result;
}

TEST(RankEnvironment, is_what_init_reads) {
  const Meeting meeting = meeting_with_secret();
  const Variables variables = make({}, second_of_two_hosts(), meeting);
  const Environment found = read_environment([&](const char* name) -> const char* {
    const auto entry = variables.find(name);
    return entry == variables.end() ? nullptr : entry->second.c_str();
  });
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.world_size, 6);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_EQ(found.local_world_size, 3);
  EXPECT_EQ(found.node_rank, 1);
  EXPECT_EQ(found.node_count, 2);
  EXPECT_EQ(found.master_addr, "node0");
  EXPECT_EQ(found.master_port, 4711);
  EXPECT_EQ(found.connect_timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(std::get<SecretDescriptor>(found.secret).number, meeting.secret_fd.raw());
}

TEST(RankEnvironment, wins_over_what_a_site_had_set) {
  const Meeting meeting = meeting_with_secret();
  const Variables variables =
      make({"RANK=77", "MASTER_ADDR=elsewhere", "PACELINE_SECRET_FILE=/old", "HOME=/root", "ODD"},
           second_of_two_hosts(), meeting);
  EXPECT_EQ(variables.at("RANK"), "5");
  EXPECT_EQ(variables.at("MASTER_ADDR"), "node0");
  EXPECT_EQ(variables.count("PACELINE_SECRET_FILE"), 0U);
  EXPECT_EQ(variables.at("HOME"), "/root");
}

TEST(RankEnvironment, keeps_a_thread_count_that_is_set_and_shares_the_cores_else) {
  const Meeting meeting = meeting_with_secret();
  EXPECT_EQ(make({"OMP_NUM_THREADS=7"}, second_of_two_hosts(), meeting).at("OMP_NUM_THREADS"), "7");
  EXPECT_GE(std::stoi(make({}, second_of_two_hosts(), meeting).at("OMP_NUM_THREADS")), 1);
}

TEST(RankEnvironment, carries_the_ids_of_this_job_and_of_those_around_it) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(with_job({}, "inner"), Texts{"PACELINE_JOB=inner"});
  EXPECT_EQ(with_job({"PACELINE_JOB=outer"}, "inner"), Texts{"PACELINE_JOB=outer:inner"});
}

TEST(RankEnvironment, says_so_when_authentication_is_off) {
  const Meeting open;
  const Variables variables = make({"PACELINE_SECRET_FD=3"}, second_of_two_hosts(), open);
  EXPECT_EQ(variables.at("PACELINE_AUTH"), "none");
  EXPECT_EQ(variables.count("PACELINE_SECRET_FD"), 0U);
}

TEST(RankEnvironment, tells_of_a_terminal_and_leaves_room_for_the_prefix) {
  const Meeting meeting = meeting_with_secret();
  const Variables watched = make({}, second_of_two_hosts(), meeting, 80);
  EXPECT_EQ(watched.at("PACELINE_TERMINAL"), "1");
  EXPECT_EQ(watched.at("COLUMNS"), "76");
  EXPECT_EQ(
      make({"PACELINE_TERMINAL=1"}, second_of_two_hosts(), meeting).count("PACELINE_TERMINAL"), 0U);
}

}  // namespace
}  // namespace paceline::apps
