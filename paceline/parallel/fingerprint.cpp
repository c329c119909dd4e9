// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "paceline/base/assert.h"
#include "paceline/base/error.h"

namespace paceline {
namespace {

constexpr std::int64_t kLongestText = std::int64_t{1} << 30;

std::string encode(const Fingerprint& fingerprint) {
  std::string text;
  for (const auto& trait : fingerprint) {
    text.append(trait.name).push_back('\0');
    text.append(trait.value).push_back('\0');
  }
  return text;
}

std::string take_field(std::string_view& text) {
  const std::size_t end = text.find('\0');
  std::string field(text.substr(0, end));
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return field;
}

Fingerprint decode(std::string_view text) {
  Fingerprint fingerprint;
  while (!text.empty()) {
    std::string name = take_field(text);
    fingerprint.push_back({std::move(name), take_field(text)});
  }
  return fingerprint;
}

// FNV-1a, 64 bits: it tells mistakes apart, not attackers.
std::int64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<std::int64_t>(hash);
}

struct Summary {
  std::int64_t hash;
  std::int64_t length;
  bool operator==(const Summary&) const = default;
};

std::vector<Summary> gather(const Summary& mine, Communicator& comm, const CallOptions& options) {
  const std::array<std::int64_t, 2> in{mine.hash, mine.length};
  std::vector<std::int64_t> out(2 * static_cast<std::size_t>(comm.world_size()));
  PACELINE_ASSERT(comm.shard(out.size()).size() == in.size(), "shards of equal size expected");
  comm.allgather(std::span<const std::int64_t>(in), std::span(out), options);
  std::vector<Summary> all;
  for (std::size_t i = 0; i < out.size(); i += 2) all.push_back({out[i], out[i + 1]});
  PACELINE_ASSERT(all[static_cast<std::size_t>(comm.rank())] == mine,
                  "all-gather changed its input");
  return all;
}

Fingerprint fetch(const std::string& mine,
                  int root,
                  std::int64_t length,
                  Communicator& comm,
                  const CallOptions& options) {
  if (length < 0 || length > kLongestText) {
    throw CommError(CommErrc::kMismatch, comm.rank(), root, "a model's description is too long");
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(length));
  if (comm.rank() == root) std::copy(mine.begin(), mine.end(), bytes.begin());
  comm.broadcast(std::span(bytes), root, options);
  return decode(std::string(bytes.begin(), bytes.end()));
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

bool has(const Fingerprint& fingerprint, const std::string& name) {
  return std::any_of(fingerprint.begin(), fingerprint.end(),
                     [&](const Trait& trait) { return trait.name == name; });
}

}  // namespace

std::string first_difference(const Fingerprint& mine,
                             const Fingerprint& other,
                             std::string_view who,
                             std::string_view me) {
  const auto [a, b] = std::mismatch(mine.begin(), mine.end(), other.begin(), other.end());
  const std::string them(who), us(me);
  if (a == mine.end() && b == other.end()) return {};
  if (a != mine.end() && b != other.end() && a->name == b->name) {
    return a->name + " is " + a->value + " on " + us + ", but " + b->value + " on " + them;
  }
  if (a != mine.end() && !has(other, a->name)) {
    return a->name + " (" + a->value + ") is there on " + us + ", but not on " + them;
  }
  if (b != other.end() && !has(mine, b->name)) {
    return b->name + " (" + b->value + ") is there on " + them + ", but not on " + us;
  }
  const std::string here = a == mine.end() ? "nothing more" : a->name;
  const std::string there = b == other.end() ? "nothing more" : b->name;
  return "the order differs: " + us + " has " + here + " where " + them + " has " + there;
}

void require_equal_on_all_ranks(const Fingerprint& fingerprint,
                                Communicator& comm,
                                std::chrono::milliseconds timeout,
                                std::string_view who) {
  const CallOptions options{.label = std::string(who), .timeout = timeout};
  const std::string text = encode(fingerprint);
  const auto all = gather({hash_of(text), static_cast<std::int64_t>(text.size())}, comm, options);
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const Summary& summary) { return summary != all.front(); });
  if (other == all.end()) return;
  std::vector<int> alike;  // those that are unlike rank 0 in the same way
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == *other) alike.push_back(static_cast<int>(rank));
  }
  const Fingerprint first = fetch(text, 0, all.front().length, comm, options);
  const Fingerprint second = fetch(text, alike.front(), other->length, comm, options);
  throw UsageError(std::string(who) +
                   " differ: " + first_difference(first, second, ranks_text(alike)));
}

}  // namespace paceline
