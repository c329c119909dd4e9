// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A file that appears whole or not at all.

#include <filesystem>
#include <string>

namespace example {

/// Owns `<file>.partial` (or `.partial1`, … if there is one), made at once, so that a file that
/// cannot be written is found before hours of training, not after. A link stays one: the file is
/// where it leads.
class OutputFile {
 public:
  /// Errors  std::runtime_error that names `option` and the file.
  OutputFile(std::string option, std::filesystem::path file);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Where to write.
  [[nodiscard]] const std::filesystem::path& partial() const noexcept { return partial_; }

  /// Writes `text` as the whole file.
  void write(const std::string& text);

  /// What lies in partial() becomes the file.
  void commit();

 private:
  void resolve();
  void make_partial();
  [[noreturn]] void fail(const std::string& why) const;

  std::string option_;
  std::filesystem::path file_;
  std::filesystem::path partial_;
};

}  // namespace example
