// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/options.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "paceline/base/error.h"

namespace paceline::apps {
namespace {

RunOptions good() {
  RunOptions options;
  options.ranks = 2;
  options.command = {"./train"};
  return options;
}

RunOptions good_hosts() {
  RunOptions options = good();
  options.nodes = 2;
  options.master_addr = "node0";
  options.master_port = 29500;
  return options;
}

/// The message that `options` end in after `change`.
std::string complaint(RunOptions options, const std::function<void(RunOptions&)>& change) {
  change(options);
  try {
    check(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

void expect_flag(const std::string& flag, const std::string& text) {
  EXPECT_TRUE(text.starts_with(flag)) << text;
}

TEST(RunOptions, good_ones_pass) {
  EXPECT_NO_THROW(check(good()));
  EXPECT_NO_THROW(check(good_hosts()));
}

TEST(RunOptions, numbers_out_of_range_name_their_flag) {
  for (const int ranks : {0, -1, 65536})
    expect_flag("-n " + std::to_string(ranks),
                complaint(good(), [&](RunOptions& o) { o.ranks = ranks; }));
  expect_flag("--nnodes 0", complaint(good(), [](RunOptions& o) { o.nodes = 0; }));
  expect_flag("--node-rank 2", complaint(good_hosts(), [](RunOptions& o) { o.node_rank = 2; }));
  expect_flag("--node-rank -1", complaint(good_hosts(), [](RunOptions& o) { o.node_rank = -1; }));
  expect_flag("--master-port 70000",
              complaint(good(), [](RunOptions& o) { o.master_port = 70000; }));
  expect_flag("--master-port 0", complaint(good(), [](RunOptions& o) { o.master_port = 0; }));
}

TEST(RunOptions, times_are_above_zero) {
  using std::chrono::milliseconds;
  expect_flag("--connect-timeout",
              complaint(good(), [](RunOptions& o) { o.connect_timeout = milliseconds(0); }));
  expect_flag("--grace", complaint(good(), [](RunOptions& o) { o.grace = milliseconds(-1); }));
}

TEST(RunOptions, several_hosts_need_an_address_and_a_port) {
  const std::string address = complaint(good_hosts(), [](RunOptions& o) { o.master_addr.clear(); });
  EXPECT_NE(address.find("--master-addr"), std::string::npos) << address;
  const std::string port = complaint(good_hosts(), [](RunOptions& o) { o.master_port.reset(); });
  EXPECT_NE(port.find("--master-port"), std::string::npos) << port;
}

TEST(RunOptions, one_host_takes_no_address) {
  expect_flag("--master-addr", complaint(good(), [](RunOptions& o) { o.master_addr = "node0"; }));
}

TEST(RunOptions, a_program_is_needed) {
  EXPECT_NE(complaint(good(), [](RunOptions& o) { o.command.clear(); }).find("after --"),
            std::string::npos);
  const std::string empty = complaint(good(), [](RunOptions& o) { o.command = {""}; });
  EXPECT_NE(empty.find("name is empty"), std::string::npos) << empty;
}

TEST(RunOptions, a_folder_for_logs_has_a_name) {
  expect_flag("--log-dir is empty", complaint(good(), [](RunOptions& o) { o.log_dir = ""; }));
}

}  // namespace
}  // namespace paceline::apps
