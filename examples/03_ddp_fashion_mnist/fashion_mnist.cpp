// SPDX-License-Identifier: Apache-2.0
#include "fashion_mnist.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "idx_file.h"

namespace example {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOfTheDistribution = "/usr/share/datasets/fashion-mnist";
constexpr const char* kAdvice =
    "install the package dataset-fashion-mnist, or name the folder of the four .gz files with "
    "--data DIR";

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

[[noreturn]] void fail(const fs::path& file, const std::string& why) {
  throw std::runtime_error(fmt::format("cannot use '{}': {}", file.string(), why));
}

IdxArray read_existing(const fs::path& file, std::size_t dimensions) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) fail(file, fmt::format("there is no such file; {}", kAdvice));
  return read_idx_gz(file, dimensions);
}

LabelledImages read_part(const fs::path& folder, const std::string& part) {
  const fs::path image_file = folder / (part + "-images-idx3-ubyte.gz");
  const fs::path label_file = folder / (part + "-labels-idx1-ubyte.gz");
  IdxArray images = read_existing(image_file, 3);
  IdxArray labels = read_existing(label_file, 1);
  if (images.shape[1] != kSide || images.shape[2] != kSide) {
    fail(image_file, fmt::format("its images are {} x {}, not {} x {}", images.shape[1],
                                 images.shape[2], kSide, kSide));
  }
  if (images.shape[0] == 0) fail(image_file, "it holds no image");
  if (labels.shape[0] != images.shape[0]) {
    fail(label_file, fmt::format("it holds {} labels for the {} images of '{}'", labels.shape[0],
                                 images.shape[0], image_file.string()));
  }
  const std::uint8_t highest = *std::ranges::max_element(labels.values);
  if (highest >= kClasses) {
    fail(label_file, fmt::format("it holds the label {}, above {}", highest, kClasses - 1));
  }
  return {.pixels = std::move(images.values), .labels = std::move(labels.values)};
}

}  // namespace

fs::path find_fashion_mnist(const std::string& asked) {
  if (!asked.empty()) {
    if (!is_folder(asked))
      throw std::runtime_error(fmt::format("--data: '{}' is no folder", asked));
    return asked;
  }
  if (is_folder(kOfTheDistribution)) return kOfTheDistribution;
  throw std::runtime_error(
      fmt::format("there is no Fashion-MNIST in '{}': {}", kOfTheDistribution, kAdvice));
}

FashionMnist read_fashion_mnist(const fs::path& folder) {
  return {.folder = folder, .train = read_part(folder, "train"), .test = read_part(folder, "t10k")};
}

}  // namespace example
