// SPDX-License-Identifier: Apache-2.0
// The pages in docs/ show what commands print: each ```text block is in the output of the command
// above it. A ```console block is one machine's: times differ elsewhere.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/apps/command.h"

namespace paceline::test {
namespace {

struct Block {
  Texts command;  // after "paceline"
  std::string text;
  int line = 0;
};

Texts words_of(const std::string& line) {
  std::istringstream stream(line);
  Texts words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Each ```text block, with the last "    $ paceline …" line before it.
std::vector<Block> blocks_of(const fs::path& page) {
  std::ifstream stream(page);
  std::vector<Block> blocks;
  Texts command;
  bool inside = false;
  int number = 0;
  const std::string mark = "    $ paceline ";
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (!inside && line.rfind(mark, 0) == 0) command = words_of(line.substr(mark.size()));
    if (!inside && line == "    $ paceline") command.clear();
    if (line == "```text") {
      blocks.push_back({command, "", number});
      inside = true;
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

void expect_blocks_in_outputs(const std::string& name, std::size_t least) {
  const auto blocks = blocks_of(fs::path(PACELINE_DOCS) / name);
  EXPECT_GE(blocks.size(), least);
  std::map<Texts, std::string> outputs;
  for (const Block& block : blocks) {
    ASSERT_FALSE(block.command.empty()) << name << ":" << block.line << " stands below no command";
    if (!outputs.contains(block.command)) {
      Command command(block.command);
      EXPECT_EQ(command.finish(), net::ExitStatus{}) << command.error();
      outputs[block.command] = command.output();
    }
    const std::string& output = outputs[block.command];
    EXPECT_NE(output.find(block.text), std::string::npos)
        << name << ":" << block.line << " shows what is not printed; this is:\n"
        << output;
  }
}

TEST(Docs, the_ring_tutorial_shows_what_the_simulator_prints) {
  expect_blocks_in_outputs("tutorial_ring.md", 6);
}

TEST(Docs, the_comparison_shows_what_the_simulator_prints) {
  expect_blocks_in_outputs("dp_and_ddp.md", 4);
}

}  // namespace
}  // namespace paceline::test
