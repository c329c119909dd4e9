// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What ranks tell each other, over connections that they have already, before they share memory,
/// and what follows from it: the same on every rank.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace paceline::link {

/// Which links a rank wants: what joins it to its peers.
enum class LinkWish : std::uint8_t { kAuto, kShm, kTcp };
[[nodiscard]] const char* name_of(LinkWish wish) noexcept;

using Token = std::array<char, 32>;

/// What a rank says of itself.
struct Hello {
  LinkWish wish = LinkWish::kAuto;
  std::uint32_t user = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t ring_bytes = 0;
  Token token{};           ///< who shows it at the listener is this rank
  std::string listener{};  ///< an abstract local name
  std::string host{};      ///< net::host_identity()
  std::string trouble{};   ///< why it has no segment; empty: it has one
};

/// How a rank's part of the meeting ended.
struct Verdict {
  enum class Kind : std::uint8_t {
    kGood,
    kBad,
    kFollows  ///< stopped since another rank did
  };
  Kind kind = Kind::kGood;
  std::string why{};
};

inline constexpr std::size_t kHelloBytes = 1024;
inline constexpr std::size_t kVerdictBytes = 512;

[[nodiscard]] std::array<std::byte, kHelloBytes> encode(const Hello& hello);
[[nodiscard]] std::array<std::byte, kVerdictBytes> encode(const Verdict& verdict);

/// Texts that are too long end early; control characters come out as '?'.
///
/// Errors  std::runtime_error if no rank of this version can have said it.
[[nodiscard]] Hello decode_hello(std::span<const std::byte, kHelloBytes> bytes);
[[nodiscard]] Verdict decode_verdict(std::span<const std::byte, kVerdictBytes> bytes);

/// Why these ranks cannot share memory, of the lowest rank that keeps them from it; empty if they
/// may try.
///
/// Errors  UsageError if they want different links.
[[nodiscard]] std::string why_not(const std::vector<Hello>& hellos);

/// Why they do not share memory after all; empty if all went well.
[[nodiscard]] std::string why_not(const std::vector<Verdict>& verdicts);

}  // namespace paceline::link
