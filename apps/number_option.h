// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Options that take a number, with errors that say so.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <string>
#include <type_traits>

namespace paceline::apps {

/// Why `text` is no T, empty if it is one: then `value` is set.
template <typename T>
[[nodiscard]] std::string read_number(const std::string& text, T& value) {
  T read{};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, read);
  if constexpr (std::is_integral_v<T>) {
    if (error == std::errc::result_out_of_range && stopped == end)
      return "is too large a number, or too small";
    if (error != std::errc() || stopped != end) return "must be a whole number";
  } else if (error != std::errc() || stopped != end || !std::isfinite(read)) {
    return "must be a number";
  }
  value = read;
  return {};
}

/// Adds an option that stores a number in `value`. `names` begins with the one for messages.
/// CLI11's own conversion would not say what is wrong, and takes 010 for 8.
///
/// Errors  While parsing, CLI::ConversionError: "-n abc: must be a whole number".
template <typename T>
CLI::Option* add_number(CLI::App& app,
                        const std::string& names,
                        T& value,
                        const std::string& help) {
  const std::string flag = names.substr(0, names.find(','));
  const auto store = [flag, &value](const std::string& text) {
    const std::string why = read_number(text, value);
    if (why.empty()) return;
    throw CLI::ConversionError(fmt::format("{} {}: {}", flag, text.empty() ? "''" : text, why),
                               CLI::ExitCodes::ConversionError);
  };
  return app.add_option_function<std::string>(names, store, help);
}

}  // namespace paceline::apps
