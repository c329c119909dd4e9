// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Little-endian numbers and texts to bytes and back, with every bound checked.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/little_endian.h"
#include "paceline/store/message.h"

namespace paceline::store {

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  template <std::unsigned_integral T>
  void number(T value) {
    std::array<std::byte, sizeof(T)> raw{};
    store_le<T>(raw, value);
    bytes(raw);
  }
  void signed_number(int value) { number(static_cast<std::uint32_t>(value)); }
  void bytes(std::span<const std::byte> data) { out_.insert(out_.end(), data.begin(), data.end()); }

  /// Length, then at most `limit` bytes of `text`; what is cut off leaves "..." behind.
  void text(std::string_view text, std::size_t limit) {
    const bool whole = text.size() <= limit;
    const std::string_view tail = whole ? "" : "...";
    const std::string_view head = text.substr(0, whole ? text.size() : limit - tail.size());
    number(static_cast<std::uint16_t>(head.size() + tail.size()));
    bytes(std::as_bytes(std::span(head)));
    bytes(std::as_bytes(std::span(tail)));
  }

 private:
  std::vector<std::byte>& out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}

  template <std::unsigned_integral T>
  [[nodiscard]] T number() {
    return load_le<T>(bytes(sizeof(T)).first<sizeof(T)>());
  }
  [[nodiscard]] int signed_number() { return static_cast<int>(number<std::uint32_t>()); }

  [[nodiscard]] std::span<const std::byte> bytes(std::size_t count) {
    if (count > in_.size()) throw BadMessage("a message is too short for what it says it holds");
    const auto head = in_.first(count);
    in_ = in_.subspan(count);
    return head;
  }

  /// A text of at most `limit` bytes. Control characters become '?': it may end on a terminal.
  [[nodiscard]] std::string text(std::size_t limit) {
    const std::size_t size = number<std::uint16_t>();
    if (size > limit) throw BadMessage("a text in a message is too long");
    std::string result(size, '\0');
    std::ranges::transform(bytes(size), result.begin(), [](std::byte b) {
      const auto c = std::to_integer<unsigned char>(b);
      return c < 0x20 || c == 0x7f ? (c == '\n' ? '\n' : '?') : static_cast<char>(c);
    });
    return result;
  }

  void end() const {
    if (!in_.empty()) throw BadMessage("a message is longer than what it holds");
  }

 private:
  std::span<const std::byte> in_;
};

}  // namespace paceline::store
