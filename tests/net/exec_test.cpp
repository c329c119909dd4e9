// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/exec.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

TEST(Become, names_a_program_that_cannot_start_and_why) {
  try {
    become("/no/such/program", {});
  } catch (const SystemError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("/no/such/program"), std::string::npos) << text;
    EXPECT_NE(text.find("No such file"), std::string::npos) << text;
  }
}

TEST(Become, is_the_same_process_with_the_arguments_and_without_our_descriptors) {
  const auto [ours, other] = socket_pair();
  const std::string script =
      "test $$ = $1 && test \"$2\" = 'two words' && ! test -e /proc/$$/fd/$3";
  const std::string number = std::to_string(ours.raw());
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      become("/bin/sh", {"-c", script, "sh", std::to_string(::getpid()), "two words", number});
    } catch (...) {
      ::_exit(127);
    }
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace paceline::net
