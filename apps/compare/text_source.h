// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Text as numbers: what the character model reads.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace paceline::apps {

/// Characters that a sequence holds, the model's context.
inline constexpr std::size_t kContext = 64;

/// Bytes as indices into the list of those that occur.
struct TextSource {
  std::string name = {};                      ///< for people: the files
  std::vector<std::uint8_t> characters = {};  ///< indices below vocabulary
  int vocabulary = 0;
  /// Sequences: one begins at every character that kContext others follow.
  [[nodiscard]] std::size_t count() const noexcept { return characters.size() - kContext; }
};

/// Reads `files` one after the other; with none, the texts of /usr/share/common-licenses.
///
/// Errors  std::runtime_error that names a file that cannot be read; UsageError if all together
///         hold fewer than `least` sequences, or one character only.
[[nodiscard]] TextSource read_text(const std::vector<std::string>& files, std::size_t least);

}  // namespace paceline::apps
