// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <thread>
#include <vector>

#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

Bytes pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251);
  return bytes;
}

/// Closes a TCP connection with a reset instead of an orderly end.
void reset_connection(Fd& socket) {
  const linger none{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(socket.raw(), SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
  socket.reset();
}

TEST(Stream, gathers_all_parts_in_order) {
  const auto [a, b] = socket_pair();
  const Bytes bytes = pattern(300);
  const std::span<const std::byte> all(bytes);
  std::vector<std::span<const std::byte>> parts;
  for (std::size_t i = 0; i < 100; ++i) {  // more parts than one system call takes, some empty
    parts.push_back(all.subspan(3 * i, 3));
    parts.push_back({});
  }
  const IoResult sent = try_write(a, parts);
  EXPECT_EQ(sent.bytes, 64U * 3U);
  send_all(a, all.subspan(sent.bytes), soon());
  Bytes got(bytes.size());
  recv_exactly(b, got, soon());
  EXPECT_EQ(got, bytes);
}

TEST(Stream, says_that_it_would_block_when_full_and_when_empty) {
  const auto [a, b] = socket_pair();
  std::array<std::byte, 4> into{};
  EXPECT_TRUE(try_read(b, into).would_block);
  const Bytes bytes(1 << 20);
  IoResult result;
  while (!(result = try_write(a, bytes)).would_block) ASSERT_GT(result.bytes, 0U);
  EXPECT_FALSE(result.closed);
  EXPECT_EQ(result.bytes, 0U);
}

TEST(Stream, moves_nothing_for_no_bytes) {
  const auto [a, b] = socket_pair();
  const IoResult sent = try_write(a, std::span<const std::byte>());
  EXPECT_TRUE(sent.bytes == 0 && !sent.would_block && !sent.closed);
  const IoResult got = try_read(b, {});
  EXPECT_TRUE(got.bytes == 0 && !got.would_block && !got.closed);
}

TEST(Stream, sends_more_than_the_kernel_buffers) {
  const auto [a, b] = socket_pair();
  const Bytes bytes = pattern(3 << 20);
  std::jthread sender([&, &end = a] { send_all(end, bytes, soon()); });
  Bytes got(bytes.size());
  recv_exactly(b, got, soon());
  EXPECT_EQ(got, bytes);
}

TEST(Stream, an_orderly_end_comes_after_the_last_byte) {
  auto [a, b] = socket_pair();
  send_all(a, pattern(2), soon());
  a.reset();
  std::array<std::byte, 4> into{};
  EXPECT_EQ(try_read(b, into).bytes, 2U);
  const IoResult end = try_read(b, into);
  EXPECT_TRUE(end.closed);
  EXPECT_EQ(end.error, 0);
  EXPECT_THROW(recv_exactly(b, into, soon()), EndOfStream);
}

TEST(Stream, a_reset_is_told_apart_from_an_end) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  Fd client = connect_tcp("127.0.0.1", local_port(listener), soon());
  const Fd server = accept(listener, soon());
  reset_connection(client);
  std::array<std::byte, 4> into{};
  try {
    recv_exactly(server, into, soon());
    FAIL();
  } catch (const EndOfStream&) {
    FAIL() << "took a reset for an end";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), ECONNRESET);
  }
}

TEST(Stream, writing_to_a_closed_peer_raises_no_signal) {
  auto [a, b] = socket_pair();
  b.reset();
  const IoResult result = try_write(a, pattern(1));
  EXPECT_TRUE(result.closed);
  EXPECT_EQ(result.error, EPIPE);
  EXPECT_THROW(send_all(a, pattern(1), soon()), SystemError);
}

TEST(Stream, blocking_calls_end_at_the_deadline) {
  const auto [a, b] = socket_pair();
  std::array<std::byte, 4> into{};
  EXPECT_THROW(recv_exactly(b, into, Deadline::after(milliseconds(5))), TimedOut);
  EXPECT_THROW(send_all(a, Bytes(8 << 20), Deadline::after(milliseconds(5))), TimedOut);
}

}  // namespace
}  // namespace paceline::net
