// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "paceline/net/host.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

/// A file of its own, gone at the end.
class Output : public testing::Test {
 protected:
  ~Output() override { (void)std::remove(path_.c_str()); }
  [[nodiscard]] std::string content() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  const std::string path_ = testing::TempDir() + "paceline-output-" + std::to_string(process_id());
};

TEST_F(Output, is_emptied_and_written) {
  EXPECT_EQ(write_all(create_file(path_), "a long line\n"), 0);
  EXPECT_EQ(write_all(create_file(path_), "short"), 0);
  EXPECT_EQ(content(), "short");
}

TEST_F(Output, that_cannot_be_made_is_named_with_the_reason) {
  try {
    (void)create_file(testing::TempDir());
    ADD_FAILURE() << "a folder was opened for writing";
  } catch (const SystemError& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), EISDIR);
    EXPECT_NE(text.find("'" + testing::TempDir() + "' failed: Is a directory"), std::string::npos)
        << text;
  }
}

TEST_F(Output, to_a_full_disk_says_so) {
  EXPECT_EQ(write_all(Fd(::open("/dev/full", O_WRONLY | O_CLOEXEC)), "lost"), ENOSPC);
}

TEST_F(Output, that_nobody_reads_is_an_error_and_no_signal) {
  turn_write_signals_into_errors();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd write_end(ends[1]);
  Fd(ends[0]).reset();
  EXPECT_EQ(write_all(write_end, "lost"), EPIPE);
}

TEST_F(Output, beyond_the_limit_of_file_size_is_an_error_and_no_signal) {
  turn_write_signals_into_errors();
  rlimit previous{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &previous), 0);
  const rlimit small{.rlim_cur = 4, .rlim_max = previous.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const int error = write_all(create_file(path_), "kept and lost");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &previous), 0);
  EXPECT_EQ(error, EFBIG);
  EXPECT_EQ(content(), "kept");
}

}  // namespace
}  // namespace paceline::net
