// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace paceline::store {
namespace {

std::string_view first_word(std::string_view text) { return text.substr(0, text.find(' ')); }

/// The collective's name if all variants agree on it.
std::string_view common_name(std::span<const Variant> variants) {
  const auto word = first_word(variants.front().text);
  const bool same = std::ranges::all_of(
      variants, [word](const Variant& v) { return first_word(v.text) == word; });
  return same && !word.empty() ? word : "call";
}

}  // namespace

std::string name_ranks(std::span<const int> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string name_hosts(std::span<const int> hosts) {
  return fmt::format("{} {}", hosts.size() == 1 ? "host" : "hosts", fmt::join(hosts, ", "));
}

std::string name_duration(std::chrono::milliseconds duration) {
  const auto ms = duration.count();
  if (ms >= 60'000 && ms % 60'000 == 0) return fmt::format("{} min", ms / 60'000);
  if (ms >= 1'000 && ms % 1'000 == 0) return fmt::format("{} s", ms / 1'000);
  return fmt::format("{} ms", ms);
}

std::string mismatch_text(std::uint64_t sequence, std::span<const Variant> variants) {
  std::string text = fmt::format("{} #{} differs between ranks", common_name(variants), sequence);
  std::string_view separator = ": ";
  for (const auto& variant : variants) {
    text += fmt::format("{}{}: {}", separator, name_ranks(variant.ranks), variant.text);
    separator = "; ";
  }
  return text;
}

std::string progress_text(int rank, std::uint64_t issued, std::string_view last) {
  if (issued == 0) return fmt::format("rank {} has issued no call", rank);
  const std::string_view noun = issued == 1 ? "call" : "calls";
  if (last.empty()) return fmt::format("rank {} has issued {} {}", rank, issued, noun);
  return fmt::format("rank {} has issued {} {}, last {}", rank, issued, noun, last);
}

std::string silence_text(std::span<const int> ranks, std::chrono::milliseconds limit) {
  const bool one = ranks.size() == 1;
  return fmt::format("{} {} not been heard of for {}: stopped, or {} lost", name_ranks(ranks),
                     one ? "has" : "have", name_duration(limit),
                     one ? "its host is" : "their hosts are");
}

}  // namespace paceline::store
