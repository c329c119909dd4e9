// SPDX-License-Identifier: Apache-2.0
// `paceline compare` as a user runs it: it trains for real, on little.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "tests/apps/command.h"

namespace paceline::test {
namespace {

using nlohmann::json;

/// A text of 2,000 characters in `folder`.
std::string text_in(const Folder& folder) {
  std::string text;
  while (text.size() < 2000) text += "the wheel that leads takes the wind. ";
  return folder.file("text", text, kPrivate);
}

/// Trains the smallest comparison with `more` arguments and returns its JSON.
json run_compare(const Folder& folder, const Texts& more) {
  Texts arguments{"compare", "--json", folder.path() + "/out.json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Command command(arguments);
  const net::ExitStatus end = command.finish();
  EXPECT_EQ(end, net::ExitStatus{}) << command.error();
  EXPECT_NE(command.output().find("process model"), std::string::npos) << command.output();
  EXPECT_TRUE(command.all_gone());
  return end.ok() ? json::parse(folder.read("out.json")) : json();
}

const json& find(const json& all, const std::string& mechanism, int ranks) {
  for (const json& run : all.at("runs")) {
    if (run.at("mechanism") == mechanism && run.at("ranks") == ranks) return run;
  }
  throw std::runtime_error("no run of " + mechanism);
}

std::uint64_t sum(const json& numbers) {
  std::uint64_t total = 0;
  for (const json& one : numbers) total += one.get<std::uint64_t>();
  return total;
}

TEST(Compare, measures_what_the_formulas_promise) {
  const Folder folder;
  const json all = run_compare(folder, {"-n", "2,3", "--model", "mlp", "--steps", "6",
                                        "--batch-size", "12", "--algorithm", "ring"});
  ASSERT_TRUE(all.is_object());
  EXPECT_TRUE(all.at("losses_agree").get<bool>()) << all.at("largest_loss_difference");
  ASSERT_EQ(all.at("runs").size(), 6U);
  for (const std::uint64_t n : {2U, 3U}) {
    const json& dp = find(all, "dp", static_cast<int>(n));
    const auto model = dp.at("formula").at("M").get<std::uint64_t>();
    EXPECT_EQ(dp.at("bytes").at("busiest"), 2 * (n - 1) * model);
    EXPECT_EQ(dp.at("bytes").at("others"), json(std::vector<std::uint64_t>(n - 1, 2 * model)));
    EXPECT_EQ(dp.at("processes"), 1);
    const json& ddp = find(all, "ddp", static_cast<int>(n));
    EXPECT_EQ(ddp.at("bytes").at("per_link").size(), n);
    EXPECT_EQ(ddp.at("bytes").at("per_link"), ddp.at("formula").at("per_link"));
    EXPECT_EQ(sum(ddp.at("bytes").at("per_link")), 2 * (n - 1) * model);
    EXPECT_EQ(ddp.at("bytes").at("others"), ddp.at("formula").at("others"));
    EXPECT_EQ(ddp.at("processes"), n);
    EXPECT_EQ(ddp.at("losses").size(), 6U);
  }
}

TEST(Compare, trains_gpt_on_a_text_and_writes_report_and_trace) {
  const Folder folder;
  const json all =
      run_compare(folder, {"-n", "2", "--model", "gpt", "--steps", "2", "--batch-size", "4",
                           "--text", text_in(folder), "--html", folder.path() + "/out.html",
                           "--trace", folder.path() + "/out.trace"});
  ASSERT_TRUE(all.is_object());
  EXPECT_TRUE(all.at("losses_agree").get<bool>());
  EXPECT_EQ(all.at("data").at("unit"), "sequences");
  EXPECT_NE(folder.read("out.html").find(all.at("verdict").get<std::string>().substr(0, 40)),
            std::string::npos);
  EXPECT_GT(json::parse(folder.read("out.trace")).at("traceEvents").size(), 10U);
}

TEST(Compare, refuses_what_cannot_be_written_or_read_before_it_trains) {
  const Folder folder;
  const auto expect_failure = [](const Texts& arguments, const std::string& words) {
    Command command(arguments);
    EXPECT_FALSE(command.finish().ok()) << words;
    EXPECT_NE(command.error().find(words), std::string::npos) << command.error();
    EXPECT_EQ(command.output(), "");
  };
  const std::string none = folder.path() + "/none/out";
  expect_failure({"compare", "--json", none}, "--json: cannot write '" + none);
  expect_failure({"compare", "--html", none}, "--html: cannot write '" + none);
  expect_failure({"compare", "--trace", folder.path()}, "it is no ordinary file");
  expect_failure({"compare", "--data", none}, "--data: '" + none + "' is no folder");
  expect_failure({"compare", "--model", "gpt", "--text", none}, "--text: cannot read '" + none);
  expect_failure({"compare", "--model", "gpt", "--text", folder.file("short", "abc", kPrivate)},
                 "holds 3 characters");
  expect_failure({"compare", "--batch-size", "60002", "-n", "2"}, "there are only 60000 images");
  expect_failure({"compare", "-n", "0"}, "0 is not from 2 to 64");
  EXPECT_FALSE(fs::exists(folder.path() + "/none"));
}

TEST(Compare, does_not_take_its_own_output_for_a_file) {
  const Folder folder;
  const std::string link = folder.path() + "/link";  // as /dev/stdout is one
  fs::create_symlink("/proc/self/fd/1", link);
  Command command = in_shell("exec \"$@\" > '" + folder.path() + "/out'",
                             {"compare", "-n", "2", "--model", "mlp", "--steps", "1",
                              "--batch-size", "2", "--json", link});
  EXPECT_EQ(command.finish(), net::ExitStatus{.code = 1});
  EXPECT_NE(command.error().find("it is where standard output goes"), std::string::npos)
      << command.error();
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST(Compare, goes_on_where_its_standard_error_cannot_be_written) {
  Command command = in_shell("exec \"$@\" 2> /dev/full", {"compare", "-n", "2", "--model", "mlp",
                                                          "--steps", "1", "--batch-size", "2"});
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_NE(command.output().find("process model"), std::string::npos) << command.output();
}

TEST(Compare, does_not_wait_for_a_text_that_is_a_pipe) {
  const Folder folder;
  Command command = in_shell("mkfifo '" + folder.path() + "/pipe' && exec \"$@\"",
                             {"compare", "--model", "gpt", "--text", folder.path() + "/pipe"});
  EXPECT_EQ(command.finish(), net::ExitStatus{.code = 1});
  EXPECT_NE(command.error().find("it is no file"), std::string::npos) << command.error();
}

TEST(Compare, takes_names_that_are_no_utf_8_and_a_secret_of_another_job) {
  const Folder folder;
  const std::string text = text_in(folder);
  fs::rename(text, text + "\xff");
  Command command({"compare", "-n", "2", "--model", "gpt", "--steps", "1", "--batch-size", "2",
                   "--text", text + "\xff", "--json", folder.path() + "/out.json"},
                  {"PACELINE_SECRET_FILE=/none", "PACELINE_AUTH=rubbish"});
  EXPECT_EQ(command.finish(), net::ExitStatus{}) << command.error();
  EXPECT_TRUE(json::parse(folder.read("out.json")).is_object());
}

/// The sockets at which comparisons of this machine meet.
Texts meeting_places() {
  Texts places;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t at = line.find("@paceline-compare-");
    if (at == std::string::npos) continue;
    const std::string name = line.substr(at + 1);
    if (std::ranges::find(places, name) == places.end()) places.push_back(name);
  }
  return places;
}

TEST(Compare, goes_on_when_strangers_come_to_its_socket) {
  Command command({"compare", "-n", "2", "--model", "mlp", "--steps", "1", "--batch-size", "2"});
  ASSERT_TRUE(command.wait_for_error("one thread starts")) << command.error();
  const Deadline deadline = Deadline::after(kLimit);
  std::vector<net::Fd> strangers;
  for (const std::string& place : meeting_places()) {
    for (int i = 0; i < 2; ++i) strangers.push_back(net::connect_unix_abstract(place, deadline));
    net::send_all(strangers.back(), std::as_bytes(std::span("rubbish, and far too long for it")),
                  deadline);
  }
  EXPECT_FALSE(strangers.empty());
  EXPECT_EQ(command.finish(), net::ExitStatus{}) << command.error();
}

TEST(Compare, says_which_process_is_stopped) {
  Command command(
      {"compare", "-n", "2", "--model", "mlp", "--steps", "10000", "--batch-size", "8"});
  ASSERT_TRUE(command.wait_for_error("DDP, 2 ranks, step 5 of 10000")) << command.error();
  const std::string pid = std::to_string(command.pid());
  std::string worker;
  std::ifstream("/proc/" + pid + "/task/" + pid + "/children") >> worker;  // the eldest
  EXPECT_EQ(Command({"-STOP", worker}, {}, "kill").finish(), net::ExitStatus{});
  EXPECT_EQ(command.finish(), net::ExitStatus{.code = 1});
  EXPECT_NE(command.error().find("one thread: its process " + worker + " is stopped by signal 19"),
            std::string::npos)
      << command.error();
  EXPECT_TRUE(command.all_gone());
}

TEST(Compare, shows_its_table_even_if_a_file_cannot_be_written) {
  const Folder folder;
  const std::string inner = folder.path() + "/inner";
  fs::create_directory(inner);
  Command command({"compare", "-n", "2", "--model", "mlp", "--steps", "1", "--batch-size", "2",
                   "--json", inner + "/out.json", "--html", folder.path() + "/out.html"});
  ASSERT_TRUE(command.wait_for_error("one thread starts")) << command.error();
  fs::remove_all(inner);
  EXPECT_EQ(command.finish(), net::ExitStatus{.code = 1});
  EXPECT_NE(command.error().find("--json: cannot write"), std::string::npos) << command.error();
  EXPECT_NE(command.output().find("process model"), std::string::npos) << command.output();
  EXPECT_NE(folder.read("out.html"), "");
}

TEST(Compare, says_what_training_says_when_it_diverges) {
  Command command({"compare", "-n", "2", "--model", "mlp", "--steps", "5", "--batch-size", "8",
                   "--lr", "1e30"});
  EXPECT_EQ(command.finish(), net::ExitStatus{.code = 1});
  EXPECT_NE(command.error().find("one thread: the loss of step"), std::string::npos)
      << command.error();
  EXPECT_NE(command.error().find("try a smaller --lr"), std::string::npos);
  EXPECT_TRUE(command.all_gone());
}

TEST(Compare, leaves_nothing_behind_when_it_is_killed) {
  const Folder folder;
  Command command({"compare", "-n", "2", "--model", "mlp", "--steps", "10000", "--batch-size", "8",
                   "--json", folder.path() + "/out.json"});
  ASSERT_TRUE(command.wait_for_error("DDP, 2 ranks, step 5 of 10000")) << command.error();
  command.signal(9);
  EXPECT_TRUE(command.all_gone());
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Compare, has_a_help_that_teaches) {
  Command command({"compare", "--help"});
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_NE(command.output().find("paceline compare -n 2,4 --html"), std::string::npos);
}

}  // namespace
}  // namespace paceline::test
