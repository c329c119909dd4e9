// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/text_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "paceline/base/error.h"

namespace paceline::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLicences = "/usr/share/common-licenses";

/// In order of their names; links would repeat what stands there already.
std::vector<std::string> licence_files() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kLicences, error)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  }
  if (files.empty()) {
    throw std::runtime_error(
        fmt::format("there are no texts in '{}': name one with --text FILE", kLicences));
  }
  std::ranges::sort(files);
  return files;
}

std::string read_file(const std::string& file) {
  std::error_code error;
  const bool is_file = fs::is_regular_file(file, error);
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error(fmt::format("--text: cannot read '{}': {}", file, why));
  };
  if (error || !is_file) refuse(error ? error.message() : "it is no file");
  std::ifstream stream(file, std::ios::binary);  // of a pipe, this would wait for a writer
  if (!stream) refuse("permission denied");
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Gives each byte that occurs the next number, in order of bytes.
void encode(const std::string& text, TextSource& source) {
  std::array<bool, 256> occurs{};
  for (const char c : text) occurs.at(static_cast<unsigned char>(c)) = true;
  std::array<std::uint8_t, 256> index{};
  for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
    if (occurs.at(byte)) index.at(byte) = static_cast<std::uint8_t>(source.vocabulary++);
  }
  source.characters.reserve(text.size());
  for (const char c : text) source.characters.push_back(index.at(static_cast<unsigned char>(c)));
}

}  // namespace

TextSource read_text(const std::vector<std::string>& files, std::size_t least) {
  TextSource source{.name = files.empty()       ? fmt::format("the texts of {}", kLicences)
                            : files.size() == 1 ? files.front()
                                                : fmt::format("{} texts", files.size())};
  std::string text;
  for (const std::string& file : files.empty() ? licence_files() : files) text += read_file(file);
  const std::size_t needed = least + kContext;
  if (text.size() < needed) {
    throw UsageError(
        fmt::format("--text: '{}' holds {} characters; sequences of {} in batches of "
                    "{} need at least {}",
                    source.name, text.size(), kContext, least, needed));
  }
  encode(text, source);
  if (source.vocabulary == 1) {
    throw UsageError(fmt::format("--text: '{}' is one character {} times: nothing to learn",
                                 source.name, text.size()));
  }
  return source;
}

}  // namespace paceline::apps
