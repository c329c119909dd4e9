// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What an example's README promises: a command, and the lines that it prints.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace example::tests {

struct Promise {
  int ranks = 0;
  std::string program;                 ///< name of the example
  std::vector<std::string> arguments;  ///< of the example
  std::vector<std::string> lines;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Ranks write when they like: only the order within a rank counts, and its prefix keeps it apart.
inline std::vector<std::string> by_rank(std::vector<std::string> lines) {
  std::ranges::stable_sort(lines, {}, [](const std::string& line) { return line.substr(0, 3); });
  return lines;
}

/// "$ build/release/paceline run -n 3 -- build/release/examples/NAME ARGUMENT..."
inline void read_command(const std::string& line, Promise& promise) {
  std::stringstream words(line);
  std::string dollar, paceline, run, n, dashes, program;
  words >> dollar >> paceline >> run >> n >> promise.ranks >> dashes >> program;
  EXPECT_EQ(paceline + " " + run + " " + n + " " + dashes, "build/release/paceline run -n --");
  const std::string folder = "build/release/examples/";
  EXPECT_TRUE(program.starts_with(folder)) << program;
  promise.program = program.substr(folder.size());
  for (std::string word; words >> word;) promise.arguments.push_back(word);
}

/// The first console block of examples/<folder>/README.md.
inline Promise read_promise(const std::string& folder) {
  std::ifstream file(std::string(PACELINE_ROOT) + "/examples/" + folder + "/README.md");
  EXPECT_TRUE(file) << folder;
  Promise promise;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "```console") {
      inside = true;
    } else if (inside && line == "```") {
      break;
    } else if (inside && line.starts_with("$ ")) {
      read_command(line, promise);
    } else if (inside) {
      promise.lines.push_back(line);
    }
  }
  EXPECT_FALSE(promise.lines.empty()) << folder << ": no console block";
  return promise;
}

}  // namespace example::tests
