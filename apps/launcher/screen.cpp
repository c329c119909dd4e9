// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "paceline/net/system_error.h"

namespace paceline::apps {
namespace {

using net::StandardStream;

constexpr std::string_view kErase = "\r\x1b[K";  // to the start, then clear to the end

/// The first `columns` characters. Bytes inside a UTF-8 character do not count.
std::string_view cut(std::string_view text, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U;
    if (starts && ++seen > columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

Screen::Screen() : columns_(net::terminal_columns(StandardStream::kOutput).value_or(0)) {}

Screen::~Screen() {
  if (shown_) (void)net::write_standard(StandardStream::kOutput, "\n");
}

std::string Screen::live_text() const {
  if (live_.empty()) return {};
  const auto& [rank, text] = *live_.begin();
  return std::string(cut(fmt::format("[{}] {}", rank, text), columns_ - 1));
}

/// Erases the live line, writes, and draws it again: in one go where both are the same stream.
void Screen::write(StandardStream stream, const std::string& text) {
  std::string before = shown_ ? std::string(kErase) : std::string();
  const std::string after = live_text();
  shown_ = !after.empty();
  if (stream == StandardStream::kOutput) {
    put(stream, before + text + after);
    return;
  }
  put(StandardStream::kOutput, before);
  put(stream, text);
  put(StandardStream::kOutput, after);
}

void Screen::put(StandardStream stream, std::string_view text) {
  const int error = net::write_standard(stream, text);
  int& first = errors_.at(static_cast<std::size_t>(stream));
  if (first == 0) first = error;
}

void Screen::line(StandardStream stream, int rank, std::string_view text) {
  write(stream, fmt::format("[{}] {}\n", rank, text));
}

void Screen::live(int rank, std::string_view text) {
  if (columns_ == 0) return;
  const std::string before = live_text();
  if (text.empty()) {
    live_.erase(rank);
  } else {
    live_[rank] = text;
  }
  if (live_text() != before) write(StandardStream::kOutput, {});
}

void Screen::note(std::string_view text) {
  write(StandardStream::kError, fmt::format("paceline: {}\n", text));
}

bool Screen::closed() const noexcept { return std::ranges::find(errors_, EPIPE) != errors_.end(); }

std::vector<std::string> Screen::losses() const {
  std::vector<std::string> result;
  for (const StandardStream stream : {StandardStream::kOutput, StandardStream::kError}) {
    const int error = errors_.at(static_cast<std::size_t>(stream));
    if (error == 0) continue;
    result.push_back(fmt::format("cannot write to standard {}: {}",
                                 stream == StandardStream::kOutput ? "output" : "error",
                                 net::errno_text(error)));
  }
  return result;
}

}  // namespace paceline::apps
