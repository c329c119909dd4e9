// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where Fashion-MNIST lies, and its images as they are in the files: one byte per pixel.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace example {

inline constexpr std::size_t kSide = 28;
inline constexpr std::size_t kPixels = kSide * kSide;
inline constexpr std::size_t kClasses = 10;

struct LabelledImages {
  std::vector<std::uint8_t> pixels;  ///< [count, kSide, kSide]
  std::vector<std::uint8_t> labels;  ///< [count], each below kClasses
  [[nodiscard]] std::size_t count() const noexcept { return labels.size(); }
};

struct FashionMnist {
  std::filesystem::path folder;
  LabelledImages train;
  LabelledImages test;
};

/// The folder that --data names; if it names none, the distribution's or else the project's.
///
/// Errors  std::runtime_error that says where it looked and what to install.
[[nodiscard]] std::filesystem::path find_fashion_mnist(const std::string& asked);

/// Reads the four files in `folder`.
///
/// Cost    47 MB.
/// Errors  std::runtime_error that names the file and what is wrong with it.
[[nodiscard]] FashionMnist read_fashion_mnist(const std::filesystem::path& folder);

}  // namespace example
