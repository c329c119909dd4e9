// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/frame.h"

#include <gtest/gtest.h>

#include <random>

namespace paceline {
namespace {

FrameHeader example() {
  return {.type = FrameType::kData,
          .wire = Form::kSum,
          .communicator = 3,
          .generation = 0x01020304,
          .sequence = 0x1112131415161718,
          .message = 7,
          .length_bytes = 4096,
          .offset = 0x2122232425262728,
          .descriptor = 0x3132333435363738};
}

TEST(Frame, survives_the_wire) {
  const DecodedFrame decoded = decode(encode(example()));
  EXPECT_EQ(decoded.error, "");
  EXPECT_EQ(decoded.header, example());
}

TEST(Frame, has_a_fixed_little_endian_layout) {
  const FrameBytes bytes = encode(example());
  ASSERT_EQ(bytes.size(), 56U);
  EXPECT_EQ(static_cast<char>(bytes[0]), 'P');
  EXPECT_EQ(static_cast<char>(bytes[3]), 'L');
  EXPECT_EQ(bytes[4], std::byte{1});      // version
  EXPECT_EQ(bytes[12], std::byte{0x04});  // generation, lowest byte first
  EXPECT_EQ(bytes[16], std::byte{0x18});
  EXPECT_EQ(bytes[39], std::byte{0x21});
}

TEST(Frame, every_flipped_bit_is_found) {
  const FrameBytes good = encode(example());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    FrameBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_NE(decode(bad).error, "") << "bit " << bit;
  }
}

TEST(Frame, noise_is_no_frame) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    FrameBytes bytes;
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    EXPECT_NE(decode(bytes).error, "");
  }
}

TEST(Frame, a_payload_beyond_the_bound_is_refused) {
  FrameHeader header = example();
  header.length_bytes = kMaxFramePayload + 1;
  EXPECT_NE(decode(encode(header)).error.find("payload"), std::string::npos);
  header.length_bytes = 4;
  header.type = FrameType::kFlag;
  EXPECT_NE(decode(encode(header)).error.find("flag"), std::string::npos);
  header.type = static_cast<FrameType>(9);
  EXPECT_NE(decode(encode(header)).error.find("type 9"), std::string::npos);
}

}  // namespace
}  // namespace paceline
