// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/connection.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "paceline/base/little_endian.h"
#include "paceline/net/poll.h"
#include "paceline/net/stream.h"

namespace paceline::apps {
namespace {
constexpr std::uint64_t kLongest = std::uint64_t{1} << 30;
using LengthBytes = std::array<std::byte, sizeof(std::uint64_t)>;
}  // namespace

void Connection::send(std::string_view word, std::string_view body, Deadline deadline) {
  send_part(word, deadline);
  send_part(body, deadline);
}

Connection::Text Connection::receive(Deadline deadline) {
  Text text;
  text.word = receive_part(deadline);
  text.body = receive_part(deadline);
  return text;
}

bool Connection::wait(Deadline deadline) const { return net::wait_readable(socket_, deadline); }

void Connection::send_part(std::string_view text, Deadline deadline) {
  LengthBytes length{};
  store_le<std::uint64_t>(length, text.size());
  net::send_all(socket_, length, deadline);
  net::send_all(socket_, std::as_bytes(std::span(text)), deadline);
}

std::string Connection::receive_part(Deadline deadline) {
  LengthBytes length{};
  net::recv_exactly(socket_, length, deadline);
  const auto bytes = load_le<std::uint64_t>(length);
  if (bytes > kLongest) throw std::runtime_error(fmt::format("a text of {} bytes came", bytes));
  std::string text(bytes, '\0');
  net::recv_exactly(socket_, std::as_writable_bytes(std::span(text)), deadline);
  return text;
}

}  // namespace paceline::apps
