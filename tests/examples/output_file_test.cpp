// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <gtest/gtest.h>

#include "folder.h"

namespace example::tests {
namespace {

TEST(OutputFile, appears_whole_and_leaves_nothing_beside_it) {
  const Folder folder;
  {
    OutputFile file("--json", folder.file("a.json"));
    file.write("new");
    EXPECT_FALSE(std::filesystem::exists(folder.file("a.json")));
    file.commit();
  }
  EXPECT_EQ(text_of(folder.file("a.json")), "new");
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.json.partial")));
}

TEST(OutputFile, that_is_given_up_keeps_what_was_there) {
  const Folder folder;
  std::ofstream(folder.file("a.json")) << "old";
  OutputFile("--json", folder.file("a.json")).write("half");
  EXPECT_EQ(text_of(folder.file("a.json")), "old");
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.json.partial")));
}

TEST(OutputFile, that_cannot_be_written_is_found_at_once) {
  const Folder folder;
  const std::string file = folder.file("no such folder/a.json");
  const std::string error = error_of([&] { const OutputFile made("--json", file); });
  expect_contains(error, "--json");
  expect_contains(error, file);
  expect_contains(error, "No such file or directory");
}

TEST(OutputFile, never_replaces_a_folder_or_a_device) {
  const Folder folder;
  for (const std::string& file : {folder.path().string(), std::string("/dev/null")}) {
    expect_contains(error_of([&] { const OutputFile made("--save", file); }), "no ordinary file");
  }
}

}  // namespace
}  // namespace example::tests
