// SPDX-License-Identifier: Apache-2.0
// `paceline run` as a user sees it: real processes, exit codes, the last words on standard error.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/comm/secret.h"
#include "paceline/net/child.h"
#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "paceline/store/join.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

constexpr auto kLimit = std::chrono::seconds(60);

/// A running `paceline`, of which every descendant holds one end of a line: when the line closes,
/// all are gone.
class Command {
 public:
  explicit Command(Texts arguments, Texts more_environment = {})
      : child_(start(arguments, more_environment)) {
    life_.second.reset();
  }

  /// Waits for the end and collects all output.
  net::ExitStatus finish() {
    std::thread errors([this] { error_ += read_all(child_.standard_error()); });
    output_ += read_all(child_.standard_output());
    errors.join();
    const auto status = child_.wait(Deadline::after(kLimit));
    EXPECT_TRUE(status.has_value()) << "still running";
    return status.value_or(net::ExitStatus{.code = -1});
  }

  /// Reads standard output until it holds `words`.
  bool wait_for(const std::string& words) {
    return read_until(child_.standard_output(), words, output_);
  }
  /// The same for standard error.
  bool wait_for_error(const std::string& words) {
    return read_until(child_.standard_error(), words, error_);
  }

  /// Whether the launcher and all that came from it end in time.
  [[nodiscard]] bool all_gone() const {
    std::array<std::byte, 16> into{};
    while (net::wait_readable(life_.first, Deadline::after(kLimit)))
      if (net::try_read(life_.first, into).closed) return true;
    return false;
  }

  void signal(int signal) { child_.signal(signal); }
  [[nodiscard]] const std::string& output() const { return output_; }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  net::Child start(const Texts& arguments, const Texts& more) {
    Texts environment = net::environment_variables();
    environment.insert(environment.end(), more.begin(), more.end());
    return net::spawn(PACELINE_COMMAND, arguments, environment, {.inherit = {&life_.second}});
  }

  static bool read_until(const net::Fd& from, const std::string& words, std::string& text) {
    std::array<std::byte, 256> into{};
    while (text.find(words) == std::string::npos) {
      if (!net::wait_readable(from, Deadline::after(kLimit))) return false;
      const net::IoResult got = net::try_read(from, into);
      text.append(reinterpret_cast<const char*>(into.data()), got.bytes);
      if (got.closed) return false;
    }
    return true;
  }

  static std::string read_all(const net::Fd& from) {
    std::string text;
    std::array<std::byte, 4096> into{};
    while (net::wait_readable(from, Deadline::after(kLimit))) {
      const net::IoResult got = net::try_read(from, into);
      text.append(reinterpret_cast<const char*>(into.data()), got.bytes);
      if (got.closed) return text;
    }
    ADD_FAILURE() << "output never ended";
    return text;
  }

  std::pair<net::Fd, net::Fd> life_ = net::socket_pair();
  net::Child child_;
  std::string output_;
  std::string error_;
};

Texts run_shell(const std::string& ranks, const std::string& script, Texts flags = {}) {
  Texts result{"run", "-n", ranks};
  result.insert(result.end(), flags.begin(), flags.end());
  result.insert(result.end(), {"--", "sh", "-c", script});
  return result;
}

std::string last_line(const std::string& text) {
  const std::string body = text.substr(0, text.find_last_not_of('\n') + 1);
  return body.substr(body.rfind('\n') + 1);
}

std::size_t count_of(const std::string& text, const std::string& words) {
  std::size_t count = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1))
    ++count;
  return count;
}

/// A folder of its own, gone at the end.
class Folder {
 public:
  Folder()
      : path_(fs::path(testing::TempDir()) /
              ("paceline run " + std::to_string(net::process_id()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name,
                                 const std::string& text,
                                 fs::perms mode) const {
    std::ofstream(path_ / name) << text;
    fs::permissions(path_ / name, mode);
    return (path_ / name).string();
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(path_ / name).rdbuf();
    return text.str();
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

constexpr auto kPrivate = fs::perms::owner_read | fs::perms::owner_write;

TEST(Run, a_failing_rank_gives_its_code_and_is_the_last_word) {
  const auto start = Clock::now();
  Command command(run_shell("3", "exit $((RANK==1?7:0))"));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 7}));
  EXPECT_EQ(last_line(command.error()),
            "paceline: rank 1 of 3 failed first: it exited with code 7");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST(Run, a_crash_is_named_by_its_signal) {
  Command command(run_shell("2", "kill -SEGV $$"));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 139}));
  EXPECT_NE(last_line(command.error()).find("SIGSEGV"), std::string::npos) << command.error();
}

TEST(Run, all_succeed_silently_and_each_has_its_rank) {
  Command command(run_shell("3",
                            "echo rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of "
                            "$LOCAL_WORLD_SIZE, host $GROUP_RANK at $MASTER_ADDR"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(command.error(), "");
  for (const char* rank : {"0", "1", "2"}) {
    const std::string line = std::string("[") + rank + "] rank " + rank + " of 3, local " + rank +
                             " of 3, host 0 at 127.0.0.1\n";
    EXPECT_NE(command.output().find(line), std::string::npos) << command.output();
  }
}

TEST(Run, lines_of_many_ranks_never_mix) {
  const std::string word(300, 'x');
  Command command(run_shell("4", "i=0; while [ $i -lt 200 ]; do printf 'half " + word +
                                     "'; echo \" whole $RANK\"; i=$((i+1)); done"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  for (const char* rank : {"0", "1", "2", "3"})
    EXPECT_EQ(count_of(command.output(),
                       std::string("[") + rank + "] half " + word + " whole " + rank + "\n"),
              200U);
}

TEST(Run, standard_error_stays_standard_error) {
  Command command(run_shell("1", "echo out; echo err >&2"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(command.output(), "[0] out\n");
  EXPECT_EQ(command.error(), "[0] err\n");
}

TEST(Run, progress_without_a_terminal_is_only_its_last_state) {
  Command command(run_shell("1", "printf '10%%\\r20%%\\r'; printf 'done\\nlast'"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(command.output(), "[0] done\n[0] last\n");
}

TEST(Run, shows_the_last_lines_of_the_rank_that_failed) {
  Command command(
      run_shell("2", "[ $RANK = 0 ] && exec sleep 600; seq 1 50; echo bad luck >&2; exit 3"));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 3}));
  EXPECT_NE(command.error().find("  | bad luck\n"), std::string::npos) << command.error();
  EXPECT_EQ(command.error().find("  | 40\n"), std::string::npos) << command.error();
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, ranks_that_ignore_sigterm_are_killed_after_the_grace_with_all_they_started) {
  Command command(
      run_shell("2", "[ $RANK = 1 ] && exit 5; trap '' TERM; sleep 600 & sleep 600; sleep 600",
                {"--grace", "0.2"}));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 5}));
  EXPECT_NE(command.error().find("rank 0 was killed by SIGKILL"), std::string::npos)
      << command.error();
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, an_interrupt_is_passed_on_and_leaves_nobody) {
  Command command(
      run_shell("2", "trap 'echo farewell $RANK; exit 0' INT; echo ready $RANK; sleep 600 & wait"));
  ASSERT_TRUE(command.wait_for("ready 0") && command.wait_for("ready 1"));
  command.signal(SIGINT);
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_NE(command.output().find("[1] farewell 1"), std::string::npos) << command.output();
  EXPECT_NE(last_line(command.error()).find("SIGINT"), std::string::npos) << command.error();
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, an_interrupt_that_kills_the_ranks_gives_130) {
  Command command(run_shell("2", "echo ready $RANK; exec sleep 600"));
  ASSERT_TRUE(command.wait_for("ready 0") && command.wait_for("ready 1"));
  command.signal(SIGINT);
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 130}));
}

TEST(Run, a_second_interrupt_kills) {
  Command command(
      run_shell("1", "trap 'echo got it' INT; echo ready; while :; do sleep 600 & wait; done"));
  ASSERT_TRUE(command.wait_for("ready"));
  command.signal(SIGINT);
  ASSERT_TRUE(command.wait_for("got it"));
  command.signal(SIGINT);
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 130}));
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, a_user_signal_is_only_passed_on) {
  Command command(run_shell(
      "1",
      "trap 'echo stop requested; exit 0' USR1; echo ready; while :; do sleep 600 & wait; done"));
  ASSERT_TRUE(command.wait_for("ready"));
  command.signal(SIGUSR1);
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_NE(command.output().find("stop requested"), std::string::npos);
  EXPECT_EQ(command.error(), "");
}

TEST(Run, a_killed_launcher_leaves_no_process) {
  Command command(run_shell("2", "sleep 600 & echo ready $RANK; wait"));
  ASSERT_TRUE(command.wait_for("ready 0") && command.wait_for("ready 1"));
  command.signal(SIGKILL);
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, what_a_rank_left_behind_ends_with_the_job) {
  Command command(run_shell("2", "sleep 600 & exit 0"));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_TRUE(command.all_gone());
}

TEST(Run, a_program_that_is_not_there_is_named) {
  Command command({"run", "-n", "2", "--", "./no-such-program"});
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 127}));
  EXPECT_NE(last_line(command.error()).find("./no-such-program"), std::string::npos)
      << command.error();
}

TEST(Run, a_file_that_may_not_run_is_named) {
  const Folder folder;
  const std::string file = folder.file("data", "text", kPrivate);
  Command command({"run", "-n", "2", "--", file});
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 126}));
  EXPECT_NE(last_line(command.error()).find(file), std::string::npos) << command.error();
}

/// Runs and expects exit code 2 with `words` in the last line.
void expect_usage_error(Texts arguments, const std::string& words, Texts environment = {}) {
  Command command(std::move(arguments), std::move(environment));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 2})) << words;
  EXPECT_NE(command.error().find(words), std::string::npos) << command.error();
}

TEST(Run, wrong_flags_are_named) {
  expect_usage_error(run_shell("0", "true"), "-n 0");
  expect_usage_error(run_shell("two", "true"), "-n");
  expect_usage_error({"run", "--", "true"}, "-n");
  expect_usage_error({"run", "-n", "2"}, "after --");
  expect_usage_error(run_shell("1", "true", {"--rocket"}), "--rocket");
  expect_usage_error(run_shell("1", "true", {"--nnodes", "2"}), "--master-addr");
  expect_usage_error(run_shell("1", "true", {"--log-dir", "/proc/no"}), "--log-dir");
}

TEST(Run, a_connection_with_another_secret_is_told_of_while_ranks_are_missing) {
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

const Texts kTwoHosts{"--nnodes",      "2",         "--node-rank",   "1",
                      "--master-addr", "127.0.0.1", "--master-port", "1"};

Texts two_hosts(Texts more) {
  Texts flags = kTwoHosts;
  flags.insert(flags.end(), more.begin(), more.end());
  return run_shell("1", "true", flags);
}

TEST(Run, several_hosts_need_a_secret_or_a_word_to_do_without) {
  expect_usage_error(two_hosts({}), "--secret-file");
  Command command(two_hosts({}), {"PACELINE_AUTH=none"});
  EXPECT_EQ(command.finish(), net::ExitStatus{});
}

TEST(Run, a_secret_file_that_is_missing_or_open_to_others_is_named) {
  const Folder folder;
  expect_usage_error(two_hosts({"--secret-file", folder.path() + "/none"}),
                     folder.path() + "/none");
  const std::string open =
      folder.file("open", std::string(40, 's'), kPrivate | fs::perms::others_read);
  expect_usage_error(two_hosts({"--secret-file", open}), "0604");
  const std::string good = folder.file("good", std::string(40, 's'), kPrivate);
  expect_usage_error(two_hosts({"--secret-file", good}), "PACELINE_AUTH", {"PACELINE_AUTH=none"});
  Command command(two_hosts({"--secret-file", good}));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
}

TEST(Run, a_port_in_use_names_the_flag) {
  const net::Fd taken = net::listen_tcp("127.0.0.1", 0);
  const std::string port = std::to_string(net::local_port(taken));
  expect_usage_error(run_shell("1", "true", {"--master-port", port}), "--master-port");
}

TEST(Run, log_files_hold_what_each_rank_wrote) {
  const Folder folder;
  Command command(run_shell("2", "printf 'a\\rb %s' $RANK; echo oops >&2",
                            {"--log-dir", folder.path() + "/logs"}));
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(folder.read("logs/rank1.out"), "a\rb 1");
  EXPECT_EQ(folder.read("logs/rank0.err"), "oops\n");
}

TEST(Run, arguments_reach_the_program_as_they_are) {
  Command command({"run", "-n", "1", "--", "sh", "-c", "printf '<%s>' \"$@\"", "sh", "[1,2]", "--",
                   "-n", "", "a b", "--help"});
  EXPECT_EQ(command.finish(), net::ExitStatus{});
  EXPECT_EQ(command.output(), "[0] <[1,2]><--><-n><><a b><--help>\n");
}

TEST(Run, help_and_version_are_a_success) {
  Command help({"run", "--help"});
  EXPECT_EQ(help.finish(), net::ExitStatus{});
  EXPECT_NE(help.output().find("--nnodes"), std::string::npos);
  Command version({"--version"});
  EXPECT_EQ(version.finish(), net::ExitStatus{});
}

}  // namespace
}  // namespace paceline
