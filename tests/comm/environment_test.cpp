// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "paceline/base/error.h"

namespace paceline {
namespace {

using Variables = std::map<std::string, std::string>;

Environment read(const Variables& variables) {
  return read_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables ours() {
  return {{"PACELINE_LAUNCHER", "rank 5 of 6"},
          {"RANK", "5"},
          {"WORLD_SIZE", "6"},
          {"LOCAL_RANK", "2"},
          {"LOCAL_WORLD_SIZE", "3"},
          {"GROUP_RANK", "1"},
          {"GROUP_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node7"},
          {"MASTER_PORT", "4711"},
          {"PACELINE_SECRET_FD", "9"}};
}

Variables torchrun() {
  return {{"TORCHELASTIC_RUN_ID", "job"},
          {"RANK", "0"},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "0"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "29500"},
          {"PACELINE_AUTH", "none"}};
}

Variables with(Variables base, const std::string& name, const std::string& value) {
  base[name] = value;
  return base;
}

Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

/// The message of the UsageError that reading ends in.
std::string complaint(const Variables& variables) {
  try {
    (void)read(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UsageError";
  return {};
}

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
}

TEST(Environment, reads_all_that_our_launcher_sets) {
  const Environment found = read(with(ours(), "PACELINE_CONNECT_TIMEOUT", "2.5"));
  EXPECT_EQ(found.launcher, Launcher::kPaceline);
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.world_size, 6);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_EQ(found.local_world_size, 3);
  EXPECT_EQ(found.node_rank, 1);
  EXPECT_EQ(found.node_count, 2);
  EXPECT_EQ(found.master_addr, "node7");
  EXPECT_EQ(found.master_port, 4711);
  EXPECT_EQ(found.master_variables, "MASTER_ADDR, MASTER_PORT");
  EXPECT_FALSE(found.serves_store);
  EXPECT_EQ(std::get<SecretDescriptor>(found.secret).number, 9);
  EXPECT_EQ(found.connect_timeout, std::chrono::milliseconds(2500));
}

TEST(Environment, knows_the_links_that_can_join_processes) {
  using link::LinkWish;
  EXPECT_EQ(read(ours()).link, LinkWish::kAuto);
  EXPECT_EQ(read(with(ours(), "PACELINE_LINK", "auto")).link, LinkWish::kAuto);
  EXPECT_EQ(read(with(ours(), "PACELINE_LINK", "shm")).link, LinkWish::kShm);
  EXPECT_EQ(read(with(torchrun(), "PACELINE_LINK", "tcp")).link, LinkWish::kTcp);
  expect_words(complaint(with(ours(), "PACELINE_LINK", "memory")),
               {"PACELINE_LINK", "joins threads", "6 ranks", "choose shm, tcp or auto"});
  expect_words(complaint(with(ours(), "PACELINE_LINK", "SHM")),
               {"PACELINE_LINK is 'SHM'", "auto, shm, tcp or memory"});
}

TEST(Environment, names_each_missing_variable_and_how_to_start) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    expect_words(complaint(without(ours(), name)), {name, "missing", "paceline run -n 1 --"});
}

TEST(Environment, an_empty_variable_is_a_missing_one) {
  expect_words(complaint(with(ours(), "RANK", "")), {"RANK", "missing"});
}

TEST(Environment, names_variable_and_value_that_are_no_number) {
  for (const char* value : {"two", "1x", " 1", "1.0", "99999999999", "-"})
    expect_words(complaint(with(ours(), "RANK", value)), {"RANK", value, "whole number"});
}

TEST(Environment, names_variable_and_value_that_are_out_of_range) {
  expect_words(complaint(with(ours(), "RANK", "6")), {"RANK is 6", "0..5"});
  expect_words(complaint(with(ours(), "RANK", "-1")), {"RANK is -1", "0..5"});
  expect_words(complaint(with(ours(), "WORLD_SIZE", "0")), {"WORLD_SIZE is 0", "1..65535"});
  expect_words(complaint(with(ours(), "LOCAL_RANK", "3")), {"LOCAL_RANK is 3", "0..2"});
  expect_words(complaint(with(ours(), "LOCAL_WORLD_SIZE", "7")), {"LOCAL_WORLD_SIZE is 7"});
  expect_words(complaint(with(ours(), "GROUP_RANK", "2")), {"GROUP_RANK is 2", "0..1"});
  expect_words(complaint(with(ours(), "MASTER_PORT", "70000")), {"MASTER_PORT is 70000"});
  expect_words(complaint(with(ours(), "MASTER_PORT", "0")), {"MASTER_PORT is 0"});
}

TEST(Environment, a_rank_that_its_host_and_local_rank_contradict_is_an_error) {
  expect_words(complaint(with(ours(), "LOCAL_RANK", "1")),
               {"RANK=5", "GROUP_RANK=1", "LOCAL_RANK=1", "the ranks 4 to 6"});
}

TEST(Environment, a_world_that_is_not_the_sum_over_hosts_is_an_error) {
  expect_words(complaint(with(ours(), "GROUP_WORLD_SIZE", "3")),
               {"WORLD_SIZE=6", "LOCAL_WORLD_SIZE=3", "GROUP_WORLD_SIZE=3"});
}

TEST(Environment, a_rank_that_was_changed_after_the_launcher_is_an_error) {
  Variables changed = with(with(ours(), "RANK", "4"), "LOCAL_RANK", "1");
  expect_words(complaint(changed), {"RANK=4", "PACELINE_LAUNCHER=rank 5 of 6"});
}

TEST(Environment, our_launcher_wins_over_what_a_site_sets) {
  Variables site = with(with(ours(), "SLURM_PROCID", "0"), "OMPI_COMM_WORLD_RANK", "3");
  EXPECT_EQ(read(with(site, "TORCHELASTIC_RUN_ID", "outer")).rank, 5);
}

TEST(Environment, without_a_launcher_it_says_how_to_start) {
  expect_words(complaint({}), {"RANK is missing", "paceline run -n 1 --"});
  expect_words(complaint({{"RANK", "1"}}), {"RANK=1", "PACELINE_LAUNCHER", "paceline run -n 1 --"});
}

TEST(Environment, without_a_launcher_it_names_sources_that_contradict) {
  expect_words(complaint({{"RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}),
               {"RANK=1 contradicts OMPI_COMM_WORLD_RANK=0"});
  expect_words(complaint({{"SLURM_PROCID", "3"}}), {"SLURM_PROCID=3", "paceline run -n 1 --"});
}

TEST(Environment, ranks_of_torchrun_meet_at_a_name_of_their_own) {
  const Environment first = read(torchrun());
  EXPECT_EQ(first.launcher, Launcher::kTorchrun);
  EXPECT_TRUE(first.master_addr.starts_with("@paceline-")) << first.master_addr;
  EXPECT_EQ(first.master_port, 0);
  EXPECT_EQ(first.master_variables, "TORCHELASTIC_RUN_ID, MASTER_PORT");
  EXPECT_TRUE(first.serves_store);
  const Environment second = read(with(with(torchrun(), "RANK", "1"), "LOCAL_RANK", "1"));
  EXPECT_FALSE(second.serves_store);
  EXPECT_EQ(second.master_addr, first.master_addr);
  EXPECT_NE(read(with(torchrun(), "TORCHELASTIC_RUN_ID", "other")).master_addr, first.master_addr);
  EXPECT_NE(read(with(torchrun(), "TORCHELASTIC_RESTART_COUNT", "1")).master_addr,
            first.master_addr);
}

TEST(Environment, the_name_of_torchruns_meeting_place_fits_a_socket_address) {
  const std::string name =
      read(with(torchrun(), "TORCHELASTIC_RUN_ID", std::string(300, 'x'))).master_addr;
  EXPECT_LE(name.size(), 107U);
}

TEST(Environment, torchrun_over_several_hosts_is_refused) {
  expect_words(complaint(with(torchrun(), "WORLD_SIZE", "4")),
               {"LOCAL_WORLD_SIZE=2", "WORLD_SIZE=4", "paceline run --nnodes"});
}

TEST(Environment, a_job_without_a_secret_is_refused) {
  expect_words(complaint(without(torchrun(), "PACELINE_AUTH")),
               {"PACELINE_SECRET_FILE", "PACELINE_AUTH=none"});
  expect_words(complaint(without(ours(), "PACELINE_SECRET_FD")), {"PACELINE_SECRET_FILE"});
}

TEST(Environment, the_secret_comes_from_a_file_or_is_switched_off_by_name) {
  Variables file = with(without(torchrun(), "PACELINE_AUTH"), "PACELINE_SECRET_FILE", "/s");
  EXPECT_EQ(std::get<SecretFile>(read(file).secret).path, "/s");
  EXPECT_TRUE(std::holds_alternative<NoSecret>(read(torchrun()).secret));
}

TEST(Environment, contradicting_words_about_the_secret_are_an_error) {
  expect_words(complaint(with(torchrun(), "PACELINE_SECRET_FILE", "/s")),
               {"PACELINE_AUTH=none", "PACELINE_SECRET_FILE=/s"});
  expect_words(complaint(with(ours(), "PACELINE_AUTH", "none")), {"PACELINE_SECRET_FD"});
  expect_words(complaint(with(torchrun(), "PACELINE_AUTH", "off")), {"PACELINE_AUTH is 'off'"});
}

TEST(Environment, a_timeout_is_a_number_of_seconds_above_zero) {
  for (const char* value : {"0", "-3", "soon", "5s", "nan", "1e99"})
    expect_words(complaint(with(ours(), "PACELINE_CONNECT_TIMEOUT", value)),
                 {"PACELINE_CONNECT_TIMEOUT", value});
}

}  // namespace
}  // namespace paceline
