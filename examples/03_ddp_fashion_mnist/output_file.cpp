// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace example {

namespace fs = std::filesystem;

namespace {
constexpr std::array<std::pair<const char*, const char*>, 2> kStreams{
    {{"/proc/self/fd/1", "standard output"}, {"/proc/self/fd/2", "standard error"}}};
}

OutputFile::OutputFile(std::string option, fs::path file)
    : option_(std::move(option)), file_(std::move(file)) {
  resolve();
  make_partial();
}

// A rename would replace the link itself, and who reads where it leads would never see the text.
void OutputFile::resolve() {
  std::error_code error;
  fs::path target = file_;
  if (fs::is_symlink(file_, error)) {
    target = fs::canonical(file_, error);
    if (error) fail("it is a link that leads nowhere");
  }
  const fs::file_status status = fs::status(target, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) fail("it is no ordinary file");
  for (const auto& [stream, name] : kStreams) {
    if (fs::equivalent(target, stream, error)) fail(fmt::format("it is where {} goes", name));
  }
  file_ = std::move(target);
}

void OutputFile::make_partial() {
  for (int number = 0;; ++number) {
    fs::path partial = file_;
    partial += number == 0 ? ".partial" : fmt::format(".partial{}", number);
    errno = 0;
    std::FILE* const made = std::fopen(partial.c_str(), "wbx");  // never what is there already
    const int why = errno;
    if (made != nullptr) {
      (void)std::fclose(made);
      partial_ = std::move(partial);
      return;
    }
    if (why != EEXIST) fail(std::generic_category().message(why != 0 ? why : EIO));
  }
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  fs::remove(partial_, ignored);
}

void OutputFile::write(const std::string& text) {
  errno = 0;
  std::ofstream stream(partial_, std::ios::binary);
  stream << text << std::flush;
  if (!stream) fail(std::generic_category().message(errno != 0 ? errno : EIO));
}

void OutputFile::commit() {
  std::error_code error;
  fs::rename(partial_, file_, error);
  if (error) fail(error.message());
}

void OutputFile::fail(const std::string& why) const {
  throw std::runtime_error(fmt::format("{}: cannot write '{}': {}", option_, file_.string(), why));
}

}  // namespace example
