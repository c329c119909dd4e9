// SPDX-License-Identifier: Apache-2.0
// What a person at a terminal sees of `paceline run`, through a pseudo-terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "paceline/net/child.h"
#include "paceline/net/fd.h"
#include "paceline/net/host.h"

namespace paceline {
namespace {

using Texts = std::vector<std::string>;

constexpr unsigned short kColumns = 30;

/// The master side of a new terminal, and the name of the other side.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_EQ(::grantpt(master_.raw()), 0);
    EXPECT_EQ(::unlockpt(master_.raw()), 0);
    std::array<char, 64> name{};
    EXPECT_EQ(::ptsname_r(master_.raw(), name.data(), name.size()), 0);
    name_ = name.data();
    keep_open_ = net::Fd(::open(name_.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
    winsize size{};
    size.ws_col = kColumns;
    EXPECT_EQ(::ioctl(master_.raw(), TIOCSWINSZ, &size), 0);
    EXPECT_EQ(::mkfifo(gate_.c_str(), 0600), 0);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() { ::unlink(gate_.c_str()); }

  /// Runs a script on two ranks with standard output on the terminal, and gives what it shows. In
  /// the script, `read go <$GATE` waits until the terminal shows `awaited`.
  std::string show(const std::string& script, const std::string& awaited = "") {
    const std::string redirected = "exec \"$@\" >" + name_;
    Texts environment = net::environment_variables();
    environment.push_back("GATE=" + gate_);
    net::Child child = net::spawn(
        "sh",
        {"-c", redirected, "sh", PACELINE_COMMAND, "run", "-n", "2", "--", "sh", "-c", script},
        environment);
    std::string text;
    if (!awaited.empty()) {
      while (text.find(awaited) == std::string::npos && read_some(text)) {
      }
      std::ofstream(gate_) << "go\n";
    }
    EXPECT_EQ(child.wait(Deadline::after(std::chrono::seconds(60))), net::ExitStatus{});
    keep_open_.reset();  // now reading ends instead of waiting
    while (read_some(text)) {
    }
    return text;
  }

 private:
  bool read_some(std::string& text) {
    std::array<char, 4096> into{};
    const ssize_t got = ::read(master_.raw(), into.data(), into.size());
    if (got > 0) text.append(into.data(), static_cast<std::size_t>(got));
    return got > 0;
  }

  net::Fd master_;
  net::Fd keep_open_;
  std::string name_;
  std::string gate_ = testing::TempDir() + "paceline-gate-" + std::to_string(net::process_id());
};

TEST(RunOnTerminal, shows_progress_at_the_bottom_and_takes_it_away_for_a_line) {
  const std::string shown = Terminal().show(
      "[ $RANK = 0 ] || exit 0; printf 'step 1\\r'; read go <$GATE; echo whole line", "step 1");
  const std::size_t progress = shown.find("[0] step 1");
  const std::size_t line = shown.find("[0] whole line\r\n");
  ASSERT_NE(progress, std::string::npos) << shown;
  ASSERT_NE(line, std::string::npos) << shown;
  EXPECT_LT(progress, line);
  EXPECT_NE(shown.substr(progress, line - progress).find("\r\x1b[K"), std::string::npos) << shown;
}

TEST(RunOnTerminal, tells_the_ranks_and_leaves_room_for_the_prefix) {
  const std::string shown = Terminal().show("echo $PACELINE_TERMINAL $COLUMNS");
  EXPECT_NE(shown.find("[1] 1 26\r\n"), std::string::npos) << shown;
}

TEST(RunOnTerminal, progress_never_wraps) {
  const std::string shown = Terminal().show(
      "[ $RANK = 0 ] || exit 0; printf '%060d\\r' 7; read go <$GATE; echo end", "0000");
  EXPECT_NE(shown.find("[0] 000"), std::string::npos) << shown;
  EXPECT_EQ(shown.find(std::string(kColumns, '0')), std::string::npos) << shown;
}

}  // namespace
}  // namespace paceline
