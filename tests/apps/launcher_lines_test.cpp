// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace paceline::apps {
namespace {

using Texts = std::vector<std::string>;

/// Feeds `bytes` in chunks of `chunk` and gives the lines.
Texts lines_of(const std::string& bytes, std::size_t chunk, bool finish = true) {
  Texts result;
  Lines lines([&](std::string_view line) { result.emplace_back(line); });
  for (std::size_t i = 0; i < bytes.size(); i += chunk) lines.feed(bytes.substr(i, chunk));
  if (finish) lines.finish();
  return result;
}

TEST(Lines, do_not_depend_on_how_the_bytes_arrive) {
  const std::string text = "one\n\ntwo\r\n10%\r20%\rdone\nend";
  const Texts expected{"one", "", "two", "done", "end"};
  for (std::size_t chunk = 1; chunk <= text.size(); ++chunk)
    EXPECT_EQ(lines_of(text, chunk), expected) << "chunks of " << chunk;
}

TEST(Lines, what_has_not_ended_is_no_line_yet_but_live) {
  Texts seen;
  Lines lines([&](std::string_view line) { seen.emplace_back(line); });
  lines.feed("epo");
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(lines.live(), "epo");
  lines.feed("ch 1\n");
  EXPECT_EQ(seen, Texts{"epoch 1"});
  EXPECT_EQ(lines.live(), "");
}

TEST(Lines, progress_stays_live_until_it_is_replaced) {
  Lines lines([](std::string_view) {});
  lines.feed("10%\r");
  EXPECT_EQ(lines.live(), "10%");
  lines.feed("20%");
  EXPECT_EQ(lines.live(), "20%");
  lines.feed("\r");
  EXPECT_EQ(lines.live(), "20%");
  lines.feed("\rdone\n");
  EXPECT_EQ(lines.live(), "");
}

TEST(Lines, the_last_progress_becomes_a_line_at_the_end) {
  EXPECT_EQ(lines_of("10%\r20%\r", 3), Texts{"20%"});
  EXPECT_EQ(lines_of("\r10%\r20%", 3), Texts{"20%"});
}

TEST(Lines, a_program_without_line_ends_cannot_fill_memory) {
  const Texts lines = lines_of(std::string(Lines::kLongest * 3, 'x'), 1000, false);
  EXPECT_EQ(lines.size(), 3U);
}

}  // namespace
}  // namespace paceline::apps
