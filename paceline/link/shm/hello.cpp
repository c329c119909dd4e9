// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/shm/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <stdexcept>
#include <string_view>

#include "paceline/base/error.h"
#include "paceline/base/little_endian.h"
#include "paceline/net/memory_limits.h"

namespace paceline::link {
namespace {

constexpr std::uint64_t kHelloMagic = 0x31304948'4c434150;    // "PACLHI01"
constexpr std::uint64_t kVerdictMagic = 0x31304456'4c434150;  // "PACLVD01"
constexpr std::size_t kNameBytes = 64;
constexpr std::size_t kTextBytes = 400;
static_assert(8 + 1 + 4 + 8 + 8 + sizeof(Token) + kNameBytes + 2 * kTextBytes <= kHelloBytes);
static_assert(8 + 1 + kTextBytes <= kVerdictBytes);

/// Fixed places, one after the other; texts end at their first zero.
class Form {
 public:
  explicit Form(std::span<std::byte> bytes) : left_(bytes) {}
  template <std::unsigned_integral T>
  void number(T value) {
    store_le<T>(next(sizeof(T)).template first<sizeof(T)>(), value);
  }
  void text(std::string_view text, std::size_t room) {
    const auto place = next(room);
    std::ranges::copy(std::as_bytes(std::span(text.substr(0, room))), place.begin());
  }

 private:
  std::span<std::byte> next(std::size_t bytes) {
    const auto place = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return place;
  }
  std::span<std::byte> left_;
};

class FormReader {
 public:
  explicit FormReader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <std::unsigned_integral T>
  [[nodiscard]] T number() {
    return load_le<T>(next(sizeof(T)).template first<sizeof(T)>());
  }
  [[nodiscard]] std::string text(std::size_t room) {
    std::string text;
    for (const std::byte byte : next(room)) {
      const char c = static_cast<char>(byte);
      if (c == '\0') break;
      text += (c >= 0 && c < ' ' && c != '\n') || c == '\x7f' ? '?' : c;
    }
    return text;
  }
  void expect(std::uint64_t magic) {
    if (number<std::uint64_t>() != magic)
      throw std::runtime_error("it speaks of other things than shared memory");
  }
  /// An enumeration's number, up to `last`.
  template <class Kind>
  [[nodiscard]] Kind kind(Kind last) {
    const auto number = this->number<std::uint8_t>();
    if (number > static_cast<std::uint8_t>(last))
      throw std::runtime_error("it says what no rank of this version can say");
    return static_cast<Kind>(number);
  }

 private:
  std::span<const std::byte> next(std::size_t bytes) {
    const auto place = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return place;
  }
  std::span<const std::byte> left_;
};

/// Of two net::host_identity(), the first "word: value" in which they differ.
std::string where_else(std::string_view theirs, std::string_view first) {
  while (!theirs.empty() || !first.empty()) {
    const auto line = theirs.substr(0, theirs.find('\n'));
    const auto other = first.substr(0, first.find('\n'));
    if (line != other) {
      const std::size_t colon = std::min(line.find(": "), line.size());
      const std::string_view what = line.substr(0, colon);
      const std::size_t value = std::min(colon + 2, std::min(line.size(), other.size()));
      return fmt::format("{} another {} ({}; rank 0: {})", what == "host" ? "runs on" : "is in",
                         what, line.substr(value), other.substr(value));
    }
    theirs.remove_prefix(std::min(theirs.size(), line.size() + 1));
    first.remove_prefix(std::min(first.size(), other.size() + 1));
  }
  return {};
}

/// Why a rank cannot share memory with rank 0; empty if nothing is known against it.
std::string why_not(const Hello& hello, const Hello& first) {
  if (hello.host != first.host) return where_else(hello.host, first.host);
  if (hello.user != first.user)
    return fmt::format("is of another user ({}; rank 0: {})", hello.user, first.user);
  if (!hello.trouble.empty()) return fmt::format("has no memory to share: {}", hello.trouble);
  if (hello.segment_bytes != first.segment_bytes)
    return fmt::format("would share {}, rank 0 {}", net::name_bytes(hello.segment_bytes),
                       net::name_bytes(first.segment_bytes));
  if (hello.ring_bytes != first.ring_bytes)
    return fmt::format("has links of {} B, rank 0 of {} B", hello.ring_bytes, first.ring_bytes);
  return {};
}

}  // namespace

const char* name_of(LinkWish wish) noexcept {
  switch (wish) {
    case LinkWish::kShm: return "shm";
    case LinkWish::kTcp: return "tcp";
    case LinkWish::kAuto: break;
  }
  return "auto";
}

std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
  std::array<std::byte, kHelloBytes> bytes{};
  Form form(bytes);
  form.number(kHelloMagic);
  form.number(static_cast<std::uint8_t>(hello.wish));
  form.number(hello.user);
  form.number(hello.segment_bytes);
  form.number(hello.ring_bytes);
  form.text({hello.token.data(), hello.token.size()}, hello.token.size());
  form.text(hello.listener, kNameBytes);
  form.text(hello.host, kTextBytes);
  form.text(hello.trouble, kTextBytes);
  return bytes;
}

std::array<std::byte, kVerdictBytes> encode(const Verdict& verdict) {
  std::array<std::byte, kVerdictBytes> bytes{};
  Form form(bytes);
  form.number(kVerdictMagic);
  form.number(static_cast<std::uint8_t>(verdict.kind));
  form.text(verdict.why, kTextBytes);
  return bytes;
}

Hello decode_hello(std::span<const std::byte, kHelloBytes> bytes) {
  FormReader form(bytes);
  form.expect(kHelloMagic);
  Hello hello;
  hello.wish = form.kind(LinkWish::kTcp);
  hello.user = form.number<std::uint32_t>();
  hello.segment_bytes = form.number<std::uint64_t>();
  hello.ring_bytes = form.number<std::uint64_t>();
  const std::string token = form.text(hello.token.size());
  std::ranges::copy(token, hello.token.begin());
  hello.listener = form.text(kNameBytes);
  hello.host = form.text(kTextBytes);
  hello.trouble = form.text(kTextBytes);
  return hello;
}

Verdict decode_verdict(std::span<const std::byte, kVerdictBytes> bytes) {
  FormReader form(bytes);
  form.expect(kVerdictMagic);
  const auto kind = form.kind(Verdict::Kind::kFollows);
  return {.kind = kind, .why = form.text(kTextBytes)};
}

std::string why_not(const std::vector<Hello>& hellos) {
  const Hello& first = hellos.front();
  for (std::size_t rank = 1; rank < hellos.size(); ++rank)
    if (hellos[rank].wish != first.wish)
      throw UsageError(fmt::format(
          "ranks want different links: PACELINE_LINK is {} at rank 0 and {} at rank {}; set it "
          "alike on all",
          name_of(first.wish), name_of(hellos[rank].wish), rank));
  if (first.wish == LinkWish::kTcp) return "PACELINE_LINK is tcp";
  for (std::size_t rank = 0; rank < hellos.size(); ++rank)
    if (const std::string why = why_not(hellos[rank], first); !why.empty())
      return fmt::format("rank {} {}", rank, why);
  return {};
}

std::string why_not(const std::vector<Verdict>& verdicts) {
  for (const auto kind : {Verdict::Kind::kBad, Verdict::Kind::kFollows})
    for (std::size_t rank = 0; rank < verdicts.size(); ++rank)
      if (verdicts[rank].kind == kind) return fmt::format("rank {}: {}", rank, verdicts[rank].why);
  return {};
}

}  // namespace paceline::link
