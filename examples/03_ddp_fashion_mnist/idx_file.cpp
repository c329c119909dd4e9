// SPDX-License-Identifier: Apache-2.0
#include "idx_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace example {
namespace {

constexpr std::uint32_t kUnsignedBytes = 0x08;             // the third byte of the magic number
constexpr std::size_t kMostValues = std::size_t{1} << 30;  // what a file may ask us to allocate

/// Reads bytes of one file; every error names it.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : name_(file.string()) {
    errno = 0;
    file_.reset(gzopen(name_.c_str(), "rb"));
    if (!file_) fail(std::generic_category().message(errno != 0 ? errno : ENOMEM));
  }

  /// Fills `into`, or fails because the file has not so many bytes.
  void read(std::span<std::uint8_t> into, std::string_view what) {
    const std::size_t got = read_some(into);
    if (got == into.size()) return;
    fail(
        fmt::format("it is truncated: {} of {} bytes of its {} are there", got, into.size(), what));
  }

  std::uint32_t read_number(std::string_view what) {
    std::array<std::uint8_t, 4> bytes{};
    read(bytes, what);
    std::uint32_t number = 0;
    for (const std::uint8_t byte : bytes) number = number << 8U | byte;
    return number;
  }

  /// Fails if anything is left, or if the checksum at the end of the file is wrong.
  void expect_end() {
    std::array<std::uint8_t, 1> more{};
    if (read_some(more) != 0) fail("it holds more values than its counts say");
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(fmt::format("cannot read '{}': {}", name_, why));
  }

 private:
  std::size_t read_some(std::span<std::uint8_t> into) {
    std::size_t done = 0;
    while (done < into.size()) {
      const std::size_t want = std::min<std::size_t>(into.size() - done, 1U << 20U);
      const int got = gzread(file_.get(), into.data() + done, static_cast<unsigned>(want));
      if (got < 0) fail_as_zlib_says();
      done += static_cast<std::size_t>(got);
      if (static_cast<std::size_t>(got) < want) break;
    }
    // A file cut in the middle of its compressed data: zlib gives what it could and an error.
    int code = Z_OK;
    (void)gzerror(file_.get(), &code);
    if (done < into.size() && code == Z_BUF_ERROR) fail("it is truncated");
    return done;
  }

  [[noreturn]] void fail_as_zlib_says() const {
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    if (code == Z_ERRNO) fail(std::generic_category().message(errno));
    if (code == Z_BUF_ERROR) fail("it is truncated");
    fail(fmt::format("it is damaged ({})", text));
  }

  struct Close {
    void operator()(gzFile file) const noexcept { (void)gzclose(file); }
  };
  std::string name_;
  std::unique_ptr<gzFile_s, Close> file_;
};

std::vector<std::size_t> read_shape(Reader& from, std::size_t dimensions) {
  std::vector<std::size_t> shape;
  std::size_t values = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    shape.push_back(from.read_number("counts"));
    if (shape.back() > kMostValues / values) from.fail("its counts are beyond reason");
    values *= std::max<std::size_t>(shape.back(), 1);
  }
  return shape;
}

}  // namespace

IdxArray read_idx_gz(const std::filesystem::path& file, std::size_t dimensions) {
  Reader reader(file);
  const std::uint32_t magic = reader.read_number("magic number");
  const std::uint32_t expected = kUnsignedBytes << 8U | static_cast<std::uint32_t>(dimensions);
  if (magic != expected) {
    reader.fail(
        fmt::format("it is no idx file with {} counts: its magic number is {:#010x}, not {:#010x}",
                    dimensions, magic, expected));
  }
  IdxArray array;
  array.shape = read_shape(reader, dimensions);
  std::size_t values = 1;
  for (const std::size_t count : array.shape) values *= count;
  array.values.resize(values);
  reader.read(array.values, "values");
  reader.expect_end();
  return array;
}

}  // namespace example
