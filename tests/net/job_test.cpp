// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/job.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "paceline/net/child.h"
#include "paceline/net/poll.h"
#include "paceline/net/stream.h"

namespace paceline::net {
namespace {

using Texts = std::vector<std::string>;

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
Texts environment(Texts more = {}) {
  more.push_back(std::string("PATH=") + std::getenv("PATH"));
  return more;
}
std::string entry(const Job& job) { return "PACELINE_JOB=" + std::string(job.id()); }

/// The first line that `child` writes.
std::string first_line(Child& child) {
  std::string text;
  for (std::byte one{}; text.empty() || text.back() != '\n';) {
    recv_exactly(child.standard_output(), {&one, 1}, soon());
    text.push_back(static_cast<char>(one));
  }
  return text;
}

/// Whether every writer of the output of `child` ends.
bool output_ends(Child& child) {
  std::byte one{};
  return wait_readable(child.standard_output(), soon()) &&
         try_read(child.standard_output(), {&one, 1}).closed;
}

TEST(Job, has_an_id_of_its_own) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.emplace(Job().id());
  EXPECT_EQ(ids.size(), 100U);
  for (const std::string& id : ids) {
    EXPECT_EQ(id.size(), 32U);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
  }
}

// Its parent ends, and it leads a session of its own.
TEST(Job, kills_who_has_left_parent_group_and_session) {
  Job job;
  Child parent = spawn("sh", {"-c", "setsid sh -c 'echo away; exec sleep 600' & read line"},
                       environment({entry(job)}));
  ASSERT_EQ(first_line(parent), "away\n");
  ASSERT_EQ(parent.wait(soon()), (ExitStatus{.code = 1}));
  job.kill();
  EXPECT_TRUE(output_ends(parent));
}

TEST(Job, kills_when_it_is_destroyed) {
  std::optional<Job> job;
  job.emplace();
  Child child = spawn("sleep", {"600"}, environment({entry(*job)}));
  job.reset();
  EXPECT_EQ(child.wait(soon()), (ExitStatus{.signal = SIGKILL}));
}

TEST(Job, leaves_others_alone) {
  Job other;
  Child stranger = spawn("sleep", {"600"}, environment());
  Child neighbour = spawn("sleep", {"600"}, environment({entry(other)}));
  Job().kill();
  for (Child* child : {&stranger, &neighbour}) {
    EXPECT_FALSE(child->try_wait());
    child->signal(SIGTERM);
    EXPECT_EQ(child->wait(soon()), (ExitStatus{.signal = SIGTERM}));
  }
}

TEST(Job, is_found_in_any_place_of_a_large_environment) {
  constexpr std::size_t kPiece = 16 << 10;  // what is read at once
  for (const std::size_t before : {std::size_t{0}, kPiece - 40, kPiece - 30, 5 * kPiece}) {
    Job job;
    Child child =
        spawn("sleep", {"600"},
              {"A=" + std::string(before, 'x'), entry(job), "Z=" + std::string(70000, 'x')});
    job.kill();
    EXPECT_EQ(child.wait(soon()), (ExitStatus{.signal = SIGKILL})) << before;
  }
}

// A shell that starts processes as fast as it can, while others die.
TEST(Job, kills_who_multiplies) {
  Job job;
  Child child = spawn("sh", {"-c", "echo started; for i in $(seq 200); do setsid sleep 600 & done"},
                      environment({entry(job)}));
  ASSERT_EQ(first_line(child), "started\n");
  job.kill();
  EXPECT_TRUE(output_ends(child));
}

}  // namespace
}  // namespace paceline::net
