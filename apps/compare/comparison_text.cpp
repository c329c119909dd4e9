// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/comparison_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "apps/compare/words.h"

namespace paceline::apps {
namespace {

constexpr std::size_t kWhat = 22;  // width of the first column
constexpr std::size_t kNarrowest = 20;

/// Characters on the screen: bytes of UTF-8 that continue one have no place of their own.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (width_of(line) + 1 + width_of(word) <= width) {
      line += " " + word;
    } else {
      lines.push_back(word);
    }
    begin = end + 1;
  }
  return lines;
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t used = width_of(text);
  return used < width ? text + std::string(width - used, ' ') : text;
}

std::string paragraph(const std::string& text, std::size_t columns) {
  return fmt::format("{}\n", fmt::join(wrapped(text, columns), "\n"));
}

std::string row_text(const TableRow& row, std::size_t width) {
  const auto what = wrapped(row.what, kWhat - 2);
  const auto dp = wrapped(row.dp, width);
  const auto ddp = wrapped(row.ddp, width);
  std::string text;
  for (std::size_t i = 0; i < std::max({what.size(), dp.size(), ddp.size()}); ++i) {
    const auto at = [i](const auto& lines) { return i < lines.size() ? lines[i] : ""; };
    std::string line = padded("  " + at(what), kWhat + 1) + padded(at(dp), width + 2) + at(ddp);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string table_text(const Comparison& comparison, std::size_t columns) {
  const std::size_t width = std::max(kNarrowest, (std::max(columns, kWhat + 3) - kWhat - 3) / 2);
  std::string text = fmt::format("{}{}{}\n", padded("", kWhat + 1), padded("DP", width + 2), "DDP");
  for (const TableSection& section : table_of(comparison)) {
    text += fmt::format("{}\n", section.dimension);
    for (const TableRow& row : section.rows) text += row_text(row, width);
  }
  return text;
}

std::string losses_text(const Comparison& comparison) {
  if (comparison.losses_agree) {
    return fmt::format(
        "All ways end with the same loss, {:.4f}; the largest difference in any step "
        "is {:.1e}, relatively (up to {:.0e} is agreement).",
        comparison.runs.front().losses.back(), comparison.largest_loss_difference, kLossTolerance);
  }
  return fmt::format(
      "THE LOSSES DO NOT AGREE: they differ by up to {:.1e}, relatively; more than "
      "{:.0e} is not explained by the order of additions. Try a smaller --lr: "
      "training may be about to diverge.",
      comparison.largest_loss_difference, kLossTolerance);
}

}  // namespace

std::string introduction_of(const CompareOptions& options) {
  return fmt::format(
      "Compares one thread, all cores, DP and DDP with {} ranks: {}, {} steps of {} "
      "samples, taking turns.\n",
      fmt::join(options.ranks, ", "), options.model, options.steps, options.batch_size);
}

std::string text_of(const Comparison& comparison, std::size_t columns) {
  std::string text = "\n" + paragraph(verdict_of(comparison), columns);
  text += paragraph(losses_text(comparison), columns) + "\n";
  text += table_text(comparison, columns) + "\n";
  for (const std::string& note : notes_of(comparison)) text += paragraph(note, columns);
  return text;
}

}  // namespace paceline::apps
