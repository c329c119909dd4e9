// SPDX-License-Identifier: Apache-2.0
// The examples without LibTorch print what their READMEs show.
#include "readme.h"

#include "ranks.h"

namespace example::tests {
namespace {

void expect_kept(const std::string& folder) {
  const Promise promise = read_promise(folder);
  Texts program{example_path(promise.program)};
  program.insert(program.end(), promise.arguments.begin(), promise.arguments.end());
  const Ran ran = run_ranks(promise.ranks, program);
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.error, "");
  EXPECT_EQ(by_rank(lines_of(ran.output)), promise.lines);
}

TEST(Readme, hello_ranks_prints_what_it_promises) { expect_kept("01_hello_ranks"); }

TEST(Readme, allreduce_prints_what_it_promises) { expect_kept("02_allreduce"); }

TEST(Readme, an_example_without_a_launcher_says_how_to_start_it) {
  Texts environment;
  for (const std::string& entry : paceline::net::environment_variables()) {
    if (!entry.starts_with("RANK=") && !entry.starts_with("WORLD_SIZE="))
      environment.push_back(entry);
  }
  const Ran ran = finish(paceline::net::spawn(example_path("hello_ranks"), {}, environment));
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.output, "");
  EXPECT_NE(ran.error.find("paceline run -n 1 --"), std::string::npos) << ran.error;
}

}  // namespace
}  // namespace example::tests
