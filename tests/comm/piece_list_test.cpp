// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/piece_list.h"

#include <gtest/gtest.h>

#include <array>

#include "paceline/base/error.h"

namespace paceline {
namespace {

std::array<float, 100> memory;

Piece piece(std::size_t first, std::size_t count) {
  return {reinterpret_cast<std::byte*>(memory.data() + first), count * sizeof(float)};
}
PieceList list(const std::vector<Piece>& pieces, std::uint64_t count, std::uint64_t begin = 0) {
  return {{Dtype::kF32, count, pieces}, {begin, begin + count}};
}

TEST(PieceList, finds_the_memory_of_each_element) {
  const PieceList pieces = list({piece(50, 10), piece(0, 0), piece(20, 5)}, 15, 1000);
  EXPECT_EQ(pieces.run(1000).data, piece(50, 1).data);
  EXPECT_EQ(pieces.run(1003).count, 7U);
  EXPECT_EQ(pieces.run(1010).data, piece(20, 1).data);
  EXPECT_EQ(pieces.run(1014).count, 1U);
}

TEST(PieceList, refuses_what_does_not_add_up) {
  EXPECT_THROW(list({piece(0, 10)}, 11), UsageError);
  EXPECT_THROW(list({piece(0, 10)}, 9), UsageError);
  EXPECT_THROW(list({{piece(0, 1).data, 6}}, 2), UsageError);
  EXPECT_THROW(list({{nullptr, 4}}, 1), UsageError);
  EXPECT_NO_THROW(list({{nullptr, 0}}, 0));
  EXPECT_NO_THROW(list({}, 0));
}

TEST(PieceList, refuses_pieces_that_overlap_each_other) {
  EXPECT_THROW(list({piece(0, 10), piece(9, 5)}, 15), UsageError);
  EXPECT_THROW(list({piece(40, 5), piece(0, 10), piece(42, 1)}, 16), UsageError);
  EXPECT_THROW(list({piece(0, 10), piece(20, 10), piece(0, 10)}, 30), UsageError);
  EXPECT_NO_THROW(list({piece(40, 5), piece(10, 10), piece(0, 10), piece(20, 20)}, 45));
}

TEST(PieceList, refuses_a_type_that_is_none) {
  const std::vector<Piece> pieces{piece(0, 1)};
  EXPECT_THROW(PieceList({static_cast<Dtype>(200), 1, pieces}, {0, 1}), UsageError);
}

TEST(PieceList, sees_every_overlap_and_no_other) {
  const PieceList even = list({piece(0, 5), piece(20, 5), piece(40, 5)}, 15);
  const PieceList odd = list({piece(35, 5), piece(5, 15), piece(25, 5)}, 25);
  EXPECT_FALSE(even.overlaps(odd));
  EXPECT_TRUE(even.overlaps(list({piece(10, 1), piece(44, 1)}, 2)));
  EXPECT_TRUE(list({piece(0, 100)}, 100).overlaps(even));
  EXPECT_FALSE(list({}, 0).overlaps(even));
  EXPECT_TRUE(even == list({piece(0, 5), piece(20, 5), piece(40, 5)}, 15));
  EXPECT_FALSE(even == odd);
}

}  // namespace
}  // namespace paceline
