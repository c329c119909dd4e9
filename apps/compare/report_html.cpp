// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/report_html.h"

#include <span>

#include "apps/compare/report_files.h"

namespace paceline::apps {
namespace {

std::string escaped(std::string_view json) {
  std::string result;
  result.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      result += "\\u003c";
    } else {
      result += c;
    }
  }
  return result;
}

std::string joined(std::span<const std::string_view> files) {
  std::string result;
  for (const std::string_view file : files) result += file;
  return result;
}

/// Copies `rest` up to `mark`, writes `text` instead of it, and leaves what follows in `rest`.
void fill(std::string& page, std::string_view& rest, std::string_view mark, std::string_view text) {
  const std::size_t at = rest.find(mark);
  page += rest.substr(0, at);
  page += text;
  rest.remove_prefix(at + mark.size());
}

}  // namespace

std::string report_html(std::string_view json) {
  std::string page;
  const std::span<const std::string_view> files = report_files();
  std::string_view rest = files[0];
  fill(page, rest, "@@STYLE@@", files[1]);
  fill(page, rest, "@@DATA@@", escaped(json));
  fill(page, rest, "@@SCRIPT@@", joined(files.subspan(2)));
  page += rest;
  return page;
}

}  // namespace paceline::apps
