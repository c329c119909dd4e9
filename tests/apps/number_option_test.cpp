// SPDX-License-Identifier: Apache-2.0
#include "apps/number_option.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace paceline::apps {
namespace {

/// What is wrong with `text` for a T.
template <typename T>
std::string complaint(const std::string& text) {
  T value{};
  return read_number(text, value);
}

TEST(Number, is_read) {
  int whole = 0;
  EXPECT_EQ(read_number("010", whole), "");
  EXPECT_EQ(whole, 10);
  EXPECT_EQ(read_number("-7", whole), "");
  EXPECT_EQ(whole, -7);
  double real = 0;
  EXPECT_EQ(read_number("2.5e1", real), "");
  EXPECT_EQ(real, 25);
}

TEST(Number, that_is_none_is_refused_and_nothing_stored) {
  int whole = 3;
  for (const char* text : {"", "abc", "1.5", "1 ", " 1", "0x10", "1,000"})
    EXPECT_EQ(read_number(text, whole), "must be a whole number") << text;
  EXPECT_EQ(whole, 3);
  for (const char* text : {"", "x", "1.5s", "nan", "inf", "1e999"})
    EXPECT_EQ(complaint<double>(text), "must be a number") << text;
}

TEST(Number, that_is_too_large_names_the_range) {
  EXPECT_EQ(complaint<int>("99999999999"), "is too large a number, or too small");
  EXPECT_EQ(complaint<std::int64_t>("99999999999"), "");
  EXPECT_EQ(complaint<int>("99999999999x"), "must be a whole number");
}

}  // namespace
}  // namespace paceline::apps
