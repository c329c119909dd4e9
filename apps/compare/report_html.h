// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The report of `paceline compare --html`: one page that needs nothing but itself.

#include <string>
#include <string_view>

namespace paceline::apps {

/// Puts `json`, the object that `paceline compare --json` writes, into the page that draws it.
/// Style and script are in the page; it loads nothing. No text inside `json` can end the element
/// that holds it: every `<` in it becomes the JSON escape \u003c.
[[nodiscard]] std::string report_html(std::string_view json);

}  // namespace paceline::apps
