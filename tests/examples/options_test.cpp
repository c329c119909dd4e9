// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <gtest/gtest.h>

#include <vector>

#include "folder.h"

namespace example::tests {
namespace {

std::optional<Options> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "ddp_fashion_mnist");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

void expect_refused(const std::vector<const char*>& arguments, const std::string& words) {
  expect_contains(error_of([&] { (void)parse(arguments); }), words);
}

TEST(Options, have_defaults) {
  const Options options = parse({}).value();
  EXPECT_EQ(options.batch_size, 64);
  EXPECT_EQ(options.lr, 0.01);
  EXPECT_FALSE(options.max_steps.has_value());
  EXPECT_TRUE(options.shuffle);
}

TEST(Options, are_read_from_the_command_line) {
  const Options options =
      parse({"--epochs", "3", "--max-steps", "30", "--batch-size", "128", "--lr", "0.5",
             "--momentum", "0", "--seed", "18446744073709551615", "--data", "here", "--save",
             "net.pt", "--json", "a.json", "--no-shuffle"})
          .value();
  EXPECT_EQ(options.epochs, 3);
  EXPECT_EQ(options.max_steps, 30);
  EXPECT_EQ(options.batch_size, 128);
  EXPECT_EQ(options.lr, 0.5);
  EXPECT_EQ(options.momentum, 0);
  EXPECT_EQ(options.seed, 18446744073709551615U);
  EXPECT_EQ(options.data, "here");
  EXPECT_EQ(options.save, "net.pt");
  EXPECT_EQ(options.json, "a.json");
  EXPECT_FALSE(options.shuffle);
}

TEST(Options, that_make_no_sense_are_named) {
  expect_refused({"--batch-size", "0"}, "--batch-size is 0");
  expect_refused({"--batch-size", "-5"}, "--batch-size is -5");
  expect_refused({"--batch-size", "many"}, "--batch-size");
  expect_refused({"--epochs", "0"}, "--epochs is 0");
  expect_refused({"--max-steps", "0"}, "--max-steps is 0");
  expect_refused({"--lr", "-0.1"}, "--lr is -0.1");
  expect_refused({"--lr", "nan"}, "--lr");
  expect_refused({"--momentum", "1"}, "--momentum is 1");
  for (const char* seed : {"-1", "abc", "18446744073709551616"})
    expect_refused({"--seed", seed},
                   "--seed is " + std::string(seed) +
                       ": it must be a whole number from 0 to 18446744073709551615");
  expect_refused({"--rocket"}, "--rocket");
  expect_refused({"--json", ""}, "--json");
  expect_refused({"--data", ""}, "--data");
  expect_refused({"--json", "x", "--save", "x"}, "'x'");
}

TEST(Options, help_asks_for_nothing_else) { EXPECT_FALSE(parse({"--help"}).has_value()); }

TEST(Options, share_a_batch_rounding_up) {
  Options options;
  EXPECT_EQ(images_per_rank(options, 1), 64U);
  EXPECT_EQ(images_per_rank(options, 3), 22U);
  EXPECT_EQ(images_per_rank(options, 5), 13U);
  options.batch_size = 2;
  EXPECT_EQ(images_per_rank(options, 4), 1U);
}

}  // namespace
}  // namespace example::tests
