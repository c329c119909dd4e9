// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The format of the MNIST family: a magic number, the counts, then bytes; compressed with gzip.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace example {

/// A row-major array of bytes.
struct IdxArray {
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> values;
};

/// Reads a whole .gz file of unsigned bytes with `dimensions` counts.
///
/// Errors  std::runtime_error that names the file and what is wrong with it: missing, damaged,
///         another kind of file, fewer or more values than its counts say.
[[nodiscard]] IdxArray read_idx_gz(const std::filesystem::path& file, std::size_t dimensions);

}  // namespace example
