// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace example {

namespace fs = std::filesystem;

OutputFile::OutputFile(std::string option, fs::path file)
    : option_(std::move(option)), file_(std::move(file)), partial_(file_) {
  partial_ += ".partial";
  std::error_code ignored;
  const fs::file_status status = fs::status(file_, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) fail("it is no ordinary file");
  errno = 0;
  if (!std::ofstream(partial_, std::ios::binary)) {
    fail(std::generic_category().message(errno != 0 ? errno : EIO));
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
