// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A small data set in the files and the format of Fashion-MNIST. It is easy to learn: a bright bar
/// says which class an image has.

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace example::tests {

using Bytes = std::vector<std::uint8_t>;

inline void append_number(Bytes& to, std::uint32_t number) {
  for (const unsigned shift : {24U, 16U, 8U, 0U}) {
    to.push_back(static_cast<std::uint8_t>(number >> shift & 0xFFU));
  }
}

/// Magic number and counts, then `values`.
inline Bytes idx(const std::vector<std::uint32_t>& counts, const Bytes& values) {
  Bytes bytes;
  append_number(bytes, 0x800U + static_cast<std::uint32_t>(counts.size()));
  for (const std::uint32_t count : counts) append_number(bytes, count);
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

inline void write_gz(const std::filesystem::path& file, const Bytes& bytes) {
  const gzFile out = gzopen(file.c_str(), "wb");
  ASSERT_NE(out, nullptr) << file;
  const int written = gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
  EXPECT_EQ(written, static_cast<int>(bytes.size()));
  EXPECT_EQ(gzclose(out), Z_OK);
}

/// Cuts the last `bytes` off.
inline void cut(const std::filesystem::path& file, std::uintmax_t bytes) {
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - bytes);
}

/// The two files of one part: "train" or "t10k".
inline void write_part(const std::filesystem::path& folder,
                       const std::string& part,
                       std::uint32_t count) {
  Bytes pixels(std::size_t{count} * 784);
  Bytes labels(count);
  for (std::size_t i = 0; i < count; ++i) {
    labels[i] = static_cast<std::uint8_t>((i * 7 + i / 10) % 10);
    std::uint8_t* image = pixels.data() + i * 784;
    for (std::size_t p = 0; p < 784; ++p)
      image[p] = static_cast<std::uint8_t>((i * 31 + p * 17) % 64);
    const std::size_t row = 2 + 2 * std::size_t{labels[i]};
    for (std::size_t p = row * 28; p < (row + 2) * 28; ++p) image[p] = 250;
  }
  write_gz(folder / (part + "-images-idx3-ubyte.gz"), idx({count, 28, 28}, pixels));
  write_gz(folder / (part + "-labels-idx1-ubyte.gz"), idx({count}, labels));
}

}  // namespace example::tests
