// SPDX-License-Identifier: Apache-2.0
#include "idx_file.h"

#include <gtest/gtest.h>

#include "folder.h"
#include "small_data.h"

namespace example::tests {
namespace {

class IdxFile : public testing::Test {
 protected:
  /// Writes `bytes` compressed and returns what reading them throws.
  std::string error_for(const Bytes& bytes, std::uintmax_t cut_off = 0) {
    write_gz(file_, bytes);
    cut(file_, cut_off);
    const std::string error = error_of([&] { (void)read_idx_gz(file_, 2); });
    expect_contains(error, file_);
    return error;
  }

  Folder folder_;
  std::string file_ = folder_.file("numbers.gz");
};

Bytes noise(std::size_t count) {
  Bytes bytes(count);
  std::uint32_t state = 1;
  for (std::uint8_t& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 24U);
  }
  return bytes;
}

TEST_F(IdxFile, gives_counts_and_values) {
  write_gz(file_, idx({2, 3}, {1, 2, 3, 4, 5, 255}));
  const IdxArray array = read_idx_gz(file_, 2);
  EXPECT_EQ(array.shape, (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(array.values, (Bytes{1, 2, 3, 4, 5, 255}));
}

TEST_F(IdxFile, may_be_empty_or_larger_than_one_read) {
  write_gz(file_, idx({0, 3}, {}));
  EXPECT_TRUE(read_idx_gz(file_, 2).values.empty());
  const Bytes large = noise(3'000'000);
  write_gz(file_, idx({3000, 1000}, large));
  EXPECT_EQ(read_idx_gz(file_, 2).values, large);
}

TEST_F(IdxFile, that_is_missing_is_named) {
  const std::string error = error_of([&] { (void)read_idx_gz(folder_.file("none.gz"), 1); });
  expect_contains(error, folder_.file("none.gz"));
  expect_contains(error, "No such file");
}

TEST_F(IdxFile, that_is_cut_anywhere_is_truncated) {
  const Bytes bytes = idx({100, 100}, noise(10'000));
  for (const std::uintmax_t cut_off : {1U, 8U, 12U, 500U, 9'000U, 10'000U}) {
    expect_contains(error_for(bytes, cut_off), "it is truncated");
  }
}

TEST_F(IdxFile, that_is_empty_is_truncated) {
  expect_contains(error_for({}, 0), "it is truncated");
}

TEST_F(IdxFile, with_fewer_values_than_its_counts_say_is_truncated) {
  expect_contains(error_for(idx({2, 3}, {1, 2, 3})), "it is truncated: 3 of 6 bytes");
}

TEST_F(IdxFile, with_more_values_than_its_counts_say_is_refused) {
  expect_contains(error_for(idx({2, 3}, Bytes(7))), "more values than its counts say");
}

TEST_F(IdxFile, of_another_kind_shows_both_magic_numbers) {
  const std::string error = error_for(idx({6}, Bytes(6)));
  expect_contains(error, "0x00000801");
  expect_contains(error, "0x00000802");
}

TEST_F(IdxFile, that_asks_for_absurd_memory_is_refused_before_it_gets_it) {
  expect_contains(error_for(idx({0xFFFFFFFF, 0xFFFFFFFF}, Bytes(6))), "beyond reason");
  expect_contains(error_for(idx({0, 0xFFFFFFFF}, {})), "beyond reason");
}

TEST_F(IdxFile, with_a_changed_byte_is_damaged) {
  write_gz(file_, idx({100, 100}, noise(10'000)));
  std::string bytes = text_of(file_);
  bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 1);  // in the checksum
  std::ofstream(file_, std::ios::binary) << bytes;
  expect_contains(error_of([&] { (void)read_idx_gz(file_, 2); }), "it is damaged");
}

TEST_F(IdxFile, that_is_a_folder_is_refused) {
  expect_contains(error_of([&] { (void)read_idx_gz(folder_.path(), 2); }), folder_.path().string());
}

}  // namespace
}  // namespace example::tests
