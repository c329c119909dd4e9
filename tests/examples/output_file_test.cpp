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

TEST(OutputFile, leaves_alone_what_has_the_name_of_its_partial_file) {
  const Folder folder;
  std::ofstream(folder.file("a.json.partial")) << "somebody's";
  OutputFile file("--json", folder.file("a.json"));
  file.write("new");
  file.commit();
  EXPECT_EQ(text_of(folder.file("a.json")), "new");
  EXPECT_EQ(text_of(folder.file("a.json.partial")), "somebody's");
}

TEST(OutputFile, writes_where_a_link_leads) {
  const Folder folder;
  std::ofstream(folder.file("real")) << "old";
  std::filesystem::create_symlink("real", folder.file("link"));
  OutputFile file("--json", folder.file("link"));
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_EQ(text_of(folder.file("real")), "new");
}

TEST(OutputFile, refuses_a_link_that_leads_nowhere) {
  const Folder folder;
  std::filesystem::create_symlink("none", folder.file("link"));
  expect_contains(error_of([&] { const OutputFile made("--json", folder.file("link")); }),
                  "it is a link that leads nowhere");
}

}  // namespace
}  // namespace example::tests
