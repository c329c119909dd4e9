// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/piece_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "paceline/base/assert.h"
#include "paceline/base/error.h"

namespace paceline {

PieceList::PieceList(const Buffer& buffer, Range elements) : element_bytes_(size_of(buffer.dtype)) {
  if (element_bytes_ == 0) throw UsageError("the elements of a buffer have no type");
  std::uint64_t at = elements.begin;
  parts_.reserve(buffer.pieces.size());
  for (const Piece& piece : buffer.pieces) {
    if (piece.bytes == 0) continue;
    if (piece.data == nullptr) throw UsageError("a piece of the buffer is null");
    if (piece.bytes % element_bytes_ != 0) {
      throw UsageError(fmt::format("a piece of {} bytes cuts an element of {} ({} bytes)",
                                   piece.bytes, name_of(buffer.dtype), element_bytes_));
    }
    const std::uint64_t count = piece.bytes / element_bytes_;
    parts_.push_back({piece.data, at, at + count});
    at += count;
    const auto address = reinterpret_cast<std::uintptr_t>(piece.data);
    low_ = parts_.size() == 1 ? address : std::min(low_, address);
    high_ = std::max(high_, address + piece.bytes);
  }
  if (at != elements.end || buffer.count != elements.size()) {
    throw UsageError(
        fmt::format("the buffer has {} elements in its pieces and {} by its count, {} are needed",
                    at - elements.begin, buffer.count, elements.size()));
  }
  if (overlaps_itself()) throw UsageError("two pieces of the buffer overlap");
}

Run PieceList::run(std::uint64_t element) const {
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), element,
                                      [](std::uint64_t e, const Part& p) { return e < p.begin; });
  PACELINE_ASSERT(after != parts_.begin(), "an element before the buffer");
  const Part& part = *(after - 1);
  PACELINE_ASSERT(element < part.end, "an element behind the buffer");
  return {part.data + (element - part.begin) * element_bytes_, part.end - element};
}

bool PieceList::touches(std::span<const std::byte> memory) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  if (parts_.empty() || high_ <= begin || begin + memory.size() <= low_) return false;
  const std::less<> before;
  const std::byte* const end = memory.data() + memory.size();
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    const Bytes bytes = bytes_of(part);
    return before(bytes.begin, end) && before(memory.data(), bytes.end);
  });
}

bool PieceList::operator==(const PieceList& other) const noexcept {
  return parts_ == other.parts_ && element_bytes_ == other.element_bytes_;
}

std::vector<PieceList::Bytes> PieceList::sorted_bytes() const {
  std::vector<Bytes> bytes;
  bytes.reserve(parts_.size());
  for (const Part& part : parts_) bytes.push_back(bytes_of(part));
  std::sort(bytes.begin(), bytes.end(),
            [](const Bytes& a, const Bytes& b) { return std::less<>()(a.begin, b.begin); });
  return bytes;
}

bool PieceList::overlaps_itself() const {
  const auto touch = [](const Bytes& a, const Bytes& b) { return std::less<>()(b.begin, a.end); };
  // Pieces mostly lie in the order of their addresses; then nothing has to be sorted.
  const auto descends = [&](const Part& a, const Part& b) {
    return touch(bytes_of(a), bytes_of(b));
  };
  if (std::adjacent_find(parts_.begin(), parts_.end(), descends) == parts_.end()) return false;
  const std::vector<Bytes> sorted = sorted_bytes();
  return std::adjacent_find(sorted.begin(), sorted.end(), touch) != sorted.end();
}

bool PieceList::overlaps(const PieceList& other) const {
  if (parts_.empty() || other.parts_.empty() || high_ <= other.low_ || other.high_ <= low_) {
    return false;
  }
  const std::vector<Bytes> mine = sorted_bytes();
  const std::vector<Bytes> theirs = other.sorted_bytes();
  for (auto a = mine.begin(), b = theirs.begin(); a != mine.end() && b != theirs.end();) {
    const std::less<> before;
    if (before(a->begin, b->end) && before(b->begin, a->end)) return true;
    if (before(a->end, b->end)) {
      ++a;
    } else {
      ++b;
    }
  }
  return false;
}

}  // namespace paceline
