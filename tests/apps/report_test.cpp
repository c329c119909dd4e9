// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "apps/compare/report_html.h"

namespace paceline::apps {
namespace {

using nlohmann::json;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string sample() { return text_of(REPORT_SAMPLE); }

/// What a browser takes for the text of <script id="data">: up to the first </script.
std::string data_in(const std::string& page) {
  const std::string_view begin = R"(<script type="application/json" id="data">)";
  const std::size_t at = page.find(begin);
  if (at == std::string::npos) return "no data";
  const std::size_t from = at + begin.size();
  return page.substr(from, page.find("</script", from) - from);
}

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Report, carries_the_data_unchanged) {
  EXPECT_EQ(json::parse(data_in(report_html(sample()))), json::parse(sample()));
}

TEST(Report, does_not_let_a_text_end_its_element) {
  const json data = {{"verdict", "</script><script>alert(1)</script>"},
                     {"notes", {"<!--<script>", "</SCRIPT >"}}};
  const std::string page = report_html(data.dump());
  EXPECT_EQ(json::parse(data_in(page)), data);
  EXPECT_EQ(count(data_in(page), "<"), 0U);
  for (const char* word : {"</script", "</SCRIPT", "<script", "<!--"}) {
    EXPECT_EQ(count(page, word), count(report_html("{}"), word)) << word;
  }
}

TEST(Report, does_not_take_a_text_for_a_place_of_the_template) {
  const json data = {{"verdict", "@@SCRIPT@@ and @@STYLE@@"}};
  const std::string page = report_html(data.dump());
  EXPECT_EQ(json::parse(data_in(page)), data);
  EXPECT_EQ(page.size(), report_html("{}").size() + data.dump().size() - 2);
}

TEST(Report, fills_every_place_of_the_template) { EXPECT_EQ(count(report_html("{}"), "@@"), 0U); }

TEST(Report, loads_nothing_from_anywhere) {
  std::string page = report_html(sample());
  const std::string name_of_svg = "http://www.w3.org/2000/svg";  // a name, which nobody fetches
  ASSERT_EQ(count(page, name_of_svg), 1U);
  page.erase(page.find(name_of_svg), name_of_svg.size());
  for (const char* word :
       {"http:", "https:", "//cdn", "<link", "src=", "@import", "url(", "fetch(", "import("}) {
    EXPECT_EQ(count(page, word), 0U) << word;
  }
}

TEST(Report, embeds_style_and_scripts_as_they_are_written) {
  const std::string page = report_html("{}");
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(REPORT_FOLDER)) {
    if (entry.path().extension() == ".html") continue;
    ++files;
    EXPECT_NE(page.find(text_of(entry.path())), std::string::npos) << entry.path();
  }
  EXPECT_GE(files, 3U);
}

}  // namespace
}  // namespace paceline::apps
