// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/secret.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "paceline/base/error.h"
#include "paceline/net/private_file.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;

/// A file in the test's folder, gone at the end.
class File {
 public:
  File(const std::string& name, const std::string& text, fs::perms mode)
      : path_(fs::path(testing::TempDir()) / ("paceline-secret-test-" + name)) {
    fs::remove(path_);
    std::ofstream(path_) << text;
    fs::permissions(path_, mode);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { fs::remove(path_); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

constexpr auto kPrivate = fs::perms::owner_read | fs::perms::owner_write;
const std::string kText = "0123456789abcdef";

std::string complaint(const SecretSource& source) {
  try {
    (void)read_secret(source);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UsageError";
  return {};
}

TEST(Secret, differs_each_time_it_is_made) { EXPECT_NE(make_secret().key, make_secret().key); }

TEST(Secret, is_read_from_a_private_file_without_its_line_end) {
  const File plain("plain", kText, kPrivate);
  const File line("line", kText + "\r\n", kPrivate);
  const File other("other", "fedcba9876543210", kPrivate);
  const store::Secret secret = read_secret(SecretFile{plain.path()});
  ASSERT_TRUE(secret.key);
  EXPECT_EQ(read_secret(SecretFile{line.path()}).key, secret.key);
  EXPECT_NE(read_secret(SecretFile{other.path()}).key, secret.key);
}

TEST(Secret, a_file_open_to_others_is_refused_by_its_mode) {
  const File file("open", kText, kPrivate | fs::perms::group_read);
  const std::string text = complaint(SecretFile{file.path()});
  EXPECT_NE(text.find("0640"), std::string::npos) << text;
  EXPECT_NE(text.find(file.path()), std::string::npos) << text;
}

TEST(Secret, a_missing_file_is_named) {
  const std::string text = complaint(SecretFile{"/nowhere/secret"});
  EXPECT_NE(text.find("/nowhere/secret"), std::string::npos) << text;
}

TEST(Secret, a_folder_is_no_file) {
  const File file("gone", kText, kPrivate);
  const std::string text = complaint(SecretFile{testing::TempDir()});
  EXPECT_NE(text.find("no regular file"), std::string::npos) << text;
}

TEST(Secret, a_short_or_a_huge_file_is_no_secret) {
  const File empty("short", "abc\n", kPrivate);
  EXPECT_NE(complaint(SecretFile{empty.path()}).find("3 bytes"), std::string::npos);
  const File huge("huge", std::string(5000, 'x'), kPrivate);
  EXPECT_NE(complaint(SecretFile{huge.path()}).find("4096"), std::string::npos);
}

TEST(Secret, is_handed_down_and_can_be_read_again) {
  const store::Secret secret = make_secret();
  const net::Fd fd = hand_down(secret);
  EXPECT_EQ(read_secret(SecretDescriptor{fd.raw()}).key, secret.key);
  EXPECT_EQ(read_secret(SecretDescriptor{fd.raw()}).key, secret.key);
}

TEST(Secret, a_descriptor_that_is_closed_or_strange_is_named) {
  net::Fd fd = hand_down(make_secret());
  const int number = fd.raw();
  fd.reset();
  EXPECT_NE(complaint(SecretDescriptor{number}).find("PACELINE_SECRET_FD"), std::string::npos);
  const std::array<std::byte, 5> strange{};
  const net::Fd other = net::make_sealed_memory("strange", strange);
  EXPECT_NE(complaint(SecretDescriptor{other.raw()}).find("no secret"), std::string::npos);
}

TEST(Secret, there_is_none_when_it_is_switched_off) { EXPECT_FALSE(read_secret(NoSecret{}).key); }

}  // namespace
}  // namespace paceline
