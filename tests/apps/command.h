// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs the command as a user does, and looks at what it leaves behind.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "paceline/net/child.h"
#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"

namespace paceline::test {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

inline constexpr auto kLimit = std::chrono::seconds(60);

/// A running `paceline`, of which every descendant holds one end of a line: when the line closes,
/// all are gone.
class Command {
 public:
  explicit Command(Texts arguments,
                   Texts more_environment = {},
                   const std::string& program = PACELINE_COMMAND)
      : child_(start(program, arguments, more_environment)) {
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

  [[nodiscard]] int pid() const { return child_.pid(); }
  void signal(int signal) { child_.signal(signal); }
  [[nodiscard]] const std::string& output() const { return output_; }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  net::Child start(const std::string& program, const Texts& arguments, const Texts& more) {
    Texts environment = net::environment_variables();
    environment.insert(environment.end(), more.begin(), more.end());
    return net::spawn(program, arguments, environment, {.inherit = {&life_.second}});
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

inline Texts run_shell(const std::string& ranks, const std::string& script, Texts flags = {}) {
  Texts result{"run", "-n", ranks};
  result.insert(result.end(), flags.begin(), flags.end());
  result.insert(result.end(), {"--", "sh", "-c", script});
  return result;
}

/// The command in the shell line `line`, where it stands as "$@".
inline Command in_shell(const std::string& line, const Texts& arguments) {
  Texts all{"-c", line, "sh", PACELINE_COMMAND};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return Command(all, {}, "sh");
}

inline std::string last_line(const std::string& text) {
  const std::string body = text.substr(0, text.find_last_not_of('\n') + 1);
  return body.substr(body.rfind('\n') + 1);
}

inline std::size_t count_of(const std::string& text, const std::string& words) {
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

inline constexpr auto kPrivate = fs::perms::owner_read | fs::perms::owner_write;

/// Runs and expects exit code 2 with `words` in the last line.
inline void expect_usage_error(Texts arguments, const std::string& words, Texts environment = {}) {
  Command command(std::move(arguments), std::move(environment));
  EXPECT_EQ(command.finish(), (net::ExitStatus{.code = 2})) << words;
  EXPECT_NE(command.error().find(words), std::string::npos) << command.error();
}

}  // namespace paceline::test
