// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/net/poll.h"
#include "paceline/net/signals.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
Texts environment(Texts more = {}) {
  more.push_back(std::string("PATH=") + std::getenv("PATH"));
  return more;
}

Child shell(const std::string& script, const SpawnOptions& options = {}, Texts more = {}) {
  return spawn("sh", {"-c", script}, environment(std::move(more)), options);
}

/// All that comes until the last writer closes.
std::string read_all(const Fd& from) {
  std::string text;
  std::array<std::byte, 256> into{};
  for (;;) {
    const IoResult got = try_read(from, into);
    text.append(reinterpret_cast<const char*>(into.data()), got.bytes);
    if (got.closed) return text;
    if (got.would_block && !wait_readable(from, soon())) {
      ADD_FAILURE() << "nobody closed the pipe";
      return text;
    }
  }
}

std::string read_line(const Fd& from) {
  std::string text;
  std::byte one{};
  for (;;) {
    recv_exactly(from, {&one, 1}, soon());
    if (one == std::byte{'\n'}) return text;
    text.push_back(static_cast<char>(one));
  }
}

std::string failure_of(const std::string& program, int code) {
  try {
    (void)spawn(program, {}, environment());
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << program << " started";
  return {};
}

/// A folder of its own, gone at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "paceline-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name, const std::string& text, bool runs) {
    const fs::path path = path_ / name;
    std::ofstream(path) << text;
    if (runs) fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST(Child, reports_the_exit_code) {
  Child child = shell("exit 7");
  EXPECT_EQ(child.wait(soon()), (ExitStatus{.code = 7}));
  EXPECT_EQ(child.try_wait()->shell_code(), 7);
  EXPECT_FALSE(child.try_wait()->ok());
  EXPECT_TRUE(shell("exit 0").wait(soon())->ok());
}

TEST(Child, reports_the_signal_that_ended_it) {
  Child child = shell("kill -SEGV $$");
  const auto status = child.wait(soon());
  EXPECT_EQ(status, (ExitStatus{.signal = SIGSEGV}));
  EXPECT_EQ(status->shell_code(), 139);
}

TEST(Child, output_and_error_come_through_pipes_of_their_own) {
  Child child = shell("echo out; echo err >&2");
  EXPECT_EQ(read_all(child.standard_output()), "out\n");
  EXPECT_EQ(read_all(child.standard_error()), "err\n");
}

TEST(Child, gets_exactly_its_arguments_and_environment_and_empty_input) {
  Child child = spawn("sh", {"-c", "echo \"$0|$1|$X|$HOME\"; cat", "zero", "a b"},
                      environment({"X=some value"}));
  EXPECT_EQ(read_all(child.standard_output()), "zero|a b|some value|\n");
}

TEST(Child, leads_a_process_group_and_has_no_signal_blocked) {
  const std::array blocked{SIGTERM, SIGINT};
  const SignalFd signals(blocked);
  // Built-in commands only: a shell that forks blocks signals for a moment.
  Child child = shell(
      "read -r pid name state parent group rest < /proc/self/stat; echo $group;"
      "while read -r key value; do [ $key = SigBlk: ] && echo $key $value; done"
      " < /proc/self/status");
  const std::string text = read_all(child.standard_output());
  EXPECT_EQ(text.find(std::to_string(child.pid()) + "\n"), 0U) << text;
  EXPECT_NE(text.find("SigBlk: 0000000000000000"), std::string::npos) << text;
}

TEST(Child, is_given_back_the_default_of_signals_that_libraries_ignore) {
  for (const int number : {SIGPIPE, SIGXFSZ}) {
    const auto previous = ::signal(number, SIG_IGN);
    Child child = shell("ulimit -c 0; kill -" + std::to_string(number) + " $$; echo survived");
    ::signal(number, previous);
    EXPECT_EQ(child.wait(soon()), (ExitStatus{.signal = number}));
  }
}

TEST(Child, inherits_the_descriptors_it_is_given_and_no_other) {
  const auto [mine, theirs] = socket_pair();
  const auto [hidden, also_hidden] = socket_pair();
  SpawnOptions options;
  options.inherit = {&theirs};
  Child child =
      shell("echo hello >&$GIVEN; [ -e /proc/$$/fd/$HIDDEN ] || echo closed", options,
            {"GIVEN=" + std::to_string(theirs.raw()), "HIDDEN=" + std::to_string(hidden.raw())});
  EXPECT_EQ(read_line(mine), "hello");
  EXPECT_EQ(read_all(child.standard_output()), "closed\n");
}

TEST(Child, refuses_to_inherit_what_is_not_open) {
  const Fd none;
  SpawnOptions options;
  options.inherit = {&none};
  EXPECT_THROW((void)shell("exit 0", options), UsageError);
}

TEST(Child, a_program_that_does_not_exist_is_named) {
  const std::string bare = failure_of("no-such-program", ENOENT);
  EXPECT_NE(bare.find("'no-such-program'"), std::string::npos) << bare;
  EXPECT_NE(bare.find("PATH"), std::string::npos) << bare;
  const std::string path = failure_of("/no/such/program", ENOENT);
  EXPECT_NE(path.find("'/no/such/program'"), std::string::npos) << path;
  failure_of("", ENOENT);
}

TEST(Child, a_program_that_may_not_run_is_named) {
  Folder folder;
  const std::string plain = folder.file("plain", "#!/bin/sh\n", false);
  const std::string text = failure_of(plain, EACCES);
  EXPECT_NE(text.find("chmod +x"), std::string::npos) << text;
  failure_of(folder.path(), EISDIR);
}

TEST(Child, a_failing_exec_is_reported_to_the_parent) {
  Folder folder;
  failure_of(folder.file("no-format", "neither binary nor script", true), ENOEXEC);
  failure_of(folder.file("no-interpreter", "#!/no/such/interpreter\n", true), ENOENT);
}

TEST(Child, a_script_that_is_named_by_path_runs) {
  Folder folder;
  const std::string script = folder.file("a script", "#!/bin/sh\nexit 3\n", true);
  EXPECT_EQ(spawn(script, {}, {}).wait(soon()), (ExitStatus{.code = 3}));
}

TEST(Child, wait_ends_at_the_deadline) {
  EXPECT_FALSE(shell("sleep 100").wait(Deadline::after(std::chrono::milliseconds(5))));
}

TEST(Child, signal_meets_the_child_and_signal_group_what_it_left_behind) {
  // The grandchild holds the pipe: the pipe ends only when it is gone.
  Child child = shell("sleep 1000 & echo started");
  ASSERT_EQ(read_line(child.standard_output()), "started");
  ASSERT_EQ(child.wait(soon()), ExitStatus{});
  child.signal_group(SIGKILL);
  EXPECT_EQ(read_all(child.standard_output()), "");
}

TEST(Child, tells_which_signal_has_stopped_it) {
  Child child = shell("kill -STOP $$; exec sleep 600");
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_EQ(child.stopped_by(), SIGSTOP);
  EXPECT_EQ(child.stopped_by(), SIGSTOP) << "looking must not use it up";
  child.signal(SIGCONT);
  child.signal(SIGTERM);
  ASSERT_TRUE(child.wait(soon()));
  EXPECT_FALSE(child.stopped_by());
}

TEST(Child, that_has_ended_is_not_stopped) {
  Child child = shell("exit 0");
  ASSERT_TRUE(wait_readable(child.ended(), soon()));  // nobody has collected it yet
  EXPECT_FALSE(child.stopped_by());
}

TEST(Child, dies_with_its_group_when_destroyed) {
  Fd output;
  {
    Child child = shell("sleep 1000 & echo started; wait");
    output = std::move(child.standard_output());
    ASSERT_EQ(read_line(output), "started");
  }
  EXPECT_EQ(read_all(output), "");
}

TEST(Child, dies_with_the_thread_that_started_it) {
  std::optional<Child> child;
  std::jthread([&] { child = shell("exec sleep 1000"); }).join();
  EXPECT_EQ(child->wait(soon()), (ExitStatus{.signal = SIGKILL}));
}

TEST(Child, starts_while_other_threads_allocate) {
  std::atomic<bool> stop{false};
  std::jthread busy([&] {
    while (!stop) (void)std::string(1000, 'x').find('y');
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(spawn("true", {}, environment()).wait(soon())->ok());
  stop = true;
}

TEST(Signals, are_read_instead_of_delivered) {
  const std::array wanted{SIGUSR1, SIGTERM};
  SignalFd signals(wanted);
  EXPECT_FALSE(signals.next());
  ::raise(SIGTERM);
  EXPECT_TRUE(wait_readable(signals.fd(), soon()));
  EXPECT_EQ(signals.next(), SIGTERM);
  EXPECT_FALSE(signals.next());
}

TEST(Signals, the_mask_is_restored) {
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  ASSERT_EQ(sigismember(&before, SIGUSR1), 0);
  { const SignalFd signals(std::array{SIGUSR1}); }
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGUSR1), 0);
}

TEST(Signals, have_names_and_meanings) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_meaning(SIGSEGV), "invalid memory access");
  EXPECT_EQ(signal_name(63), "signal 63");
  EXPECT_EQ(signal_meaning(63), "");
}

}  // namespace
}  // namespace paceline::net
