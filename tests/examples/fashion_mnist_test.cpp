// SPDX-License-Identifier: Apache-2.0
#include "fashion_mnist.h"

#include <gtest/gtest.h>

#include "folder.h"
#include "small_data.h"

namespace example::tests {
namespace {

class FashionMnistFiles : public testing::Test {
 protected:
  FashionMnistFiles() {
    write_part(folder_.path(), "train", 12);
    write_part(folder_.path(), "t10k", 5);
  }
  [[nodiscard]] std::string error() const {
    return error_of([this] { (void)read_fashion_mnist(folder_.path()); });
  }

  Folder folder_;
  std::string labels_ = folder_.file("t10k-labels-idx1-ubyte.gz");
  std::string images_ = folder_.file("train-images-idx3-ubyte.gz");
};

TEST_F(FashionMnistFiles, give_images_and_labels) {
  const FashionMnist data = read_fashion_mnist(folder_.path());
  EXPECT_EQ(data.folder, folder_.path());
  EXPECT_EQ(data.train.count(), 12U);
  EXPECT_EQ(data.train.pixels.size(), 12U * kPixels);
  EXPECT_EQ(data.test.count(), 5U);
  EXPECT_EQ(data.test.labels, (Bytes{0, 7, 4, 1, 8}));
}

TEST_F(FashionMnistFiles, of_which_one_is_missing_say_which_and_what_to_install) {
  std::filesystem::remove(labels_);
  expect_contains(error(), labels_);
  expect_contains(error(), "dataset-fashion-mnist");
  expect_contains(error(), "--data DIR");
}

TEST_F(FashionMnistFiles, of_which_one_is_truncated_say_which) {
  cut(images_, 20);
  expect_contains(error(), images_);
  expect_contains(error(), "truncated");
}

TEST_F(FashionMnistFiles, whose_counts_differ_are_refused) {
  write_gz(labels_, idx({4}, Bytes(4)));
  expect_contains(error(), labels_);
  expect_contains(error(), "4 labels for the 5 images");
}

TEST_F(FashionMnistFiles, with_images_of_another_size_are_refused) {
  write_gz(images_, idx({12, 28, 27}, Bytes(std::size_t{12} * 28 * 27)));
  expect_contains(error(), images_);
  expect_contains(error(), "28 x 27");
}

TEST_F(FashionMnistFiles, without_images_are_refused) {
  write_gz(images_, idx({0, 28, 28}, {}));
  expect_contains(error(), "no image");
}

TEST_F(FashionMnistFiles, with_a_label_beyond_the_classes_are_refused) {
  write_gz(labels_, idx({5}, {0, 1, 10, 2, 3}));
  expect_contains(error(), labels_);
  expect_contains(error(), "the label 10");
}

TEST_F(FashionMnistFiles, are_searched_where_the_user_says) {
  EXPECT_EQ(find_fashion_mnist(folder_.path().string()), folder_.path());
  const std::string none = folder_.file("none");
  expect_contains(error_of([&] { (void)find_fashion_mnist(none); }), none);
}

}  // namespace
}  // namespace example::tests
