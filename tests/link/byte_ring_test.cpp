// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/memory/byte_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace paceline::link {
namespace {

std::vector<std::byte> numbers(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

TEST(ByteRing, takes_as_much_as_fits) {
  ByteRing ring(5);
  EXPECT_EQ(ring.write(numbers(3)), 3U);
  EXPECT_EQ(ring.write(numbers(3)), 2U);
  EXPECT_EQ(ring.write(numbers(3)), 0U);
  EXPECT_FALSE(ring.has_room());
}

TEST(ByteRing, shows_bytes_only_once_published) {
  ByteRing ring(8);
  ring.write(numbers(3));
  std::array<std::byte, 8> into{};
  EXPECT_FALSE(ring.has_bytes());
  EXPECT_EQ(ring.read(into), 0U);
  ring.publish();
  EXPECT_TRUE(ring.has_bytes());
  EXPECT_EQ(ring.read(into), 3U);
}

TEST(ByteRing, reuses_room_only_once_released) {
  ByteRing ring(4);
  ring.write(numbers(4));
  ring.publish();
  std::array<std::byte, 4> into{};
  ASSERT_EQ(ring.read(std::span(into).first(3)), 3U);
  EXPECT_EQ(ring.write(numbers(4)), 0U);
  ring.release();
  EXPECT_TRUE(ring.has_room());
  EXPECT_EQ(ring.write(numbers(4)), 3U);
}

TEST(ByteRing, keeps_order_across_its_end_at_every_capacity) {
  const auto sent = numbers(1000);
  for (const std::size_t capacity : {1U, 2U, 3U, 7U, 64U, 100U}) {
    ByteRing ring(capacity);
    std::vector<std::byte> got(sent.size());
    std::size_t written = 0;
    for (std::size_t read = 0, step = 0; read < got.size(); ++step) {
      const std::size_t most = std::min(step % 9, sent.size() - written);
      written += ring.write(std::span(sent).subspan(written, most));
      ring.publish();
      read += ring.read(std::span(got).subspan(read, std::min(step % 5, got.size() - read)));
      ring.release();
    }
    EXPECT_EQ(got, sent) << capacity;
  }
}

TEST(ByteRing, carries_bytes_between_two_threads) {
  const auto sent = numbers(20'000);
  ByteRing ring(997);
  std::jthread writer([&] {
    for (std::size_t written = 0; written < sent.size();) {
      const std::size_t count = ring.write(std::span(sent).subspan(written));
      if (count == 0) std::this_thread::yield();
      written += count;
      ring.publish();
    }
  });
  std::vector<std::byte> got(sent.size());
  for (std::size_t read = 0; read < got.size();) {
    const std::size_t count = ring.read(std::span(got).subspan(read));
    if (count == 0) std::this_thread::yield();
    read += count;
    ring.release();
  }
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace paceline::link
