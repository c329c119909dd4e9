// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// One logical buffer over pieces of memory: finds the memory of an element.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "paceline/comm/engine.h"

namespace paceline {

/// Contiguous memory of `count` elements.
struct Run {
  std::byte* data = nullptr;
  std::uint64_t count = 0;
};

/// Elements [first, first + n) laid over pieces. Borrows the memory, owns the list.
class PieceList {
 public:
  PieceList() = default;
  /// Errors  UsageError if the pieces do not hold exactly `elements`, cut an element, are null or
  ///         overlap each other, or if the type is none.
  PieceList(const Buffer& buffer, Range elements);

  /// Memory from `element` to the end of its piece; `element` lies in the range.
  [[nodiscard]] Run run(std::uint64_t element) const;

  /// Calls `visit(data, begin, end)` for each piece, in order.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const Part& part : parts_) visit(part.data, part.begin, part.end);
  }
  [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }
  /// Whether any byte lies in `memory`.
  [[nodiscard]] bool touches(std::span<const std::byte> memory) const noexcept;

  /// Same memory, piece by piece.
  [[nodiscard]] bool operator==(const PieceList& other) const noexcept;
  /// Whether any byte belongs to both.
  [[nodiscard]] bool overlaps(const PieceList& other) const;

 private:
  struct Part {
    std::byte* data;
    std::uint64_t begin, end;  // elements
    bool operator==(const Part&) const = default;
  };
  struct Bytes {
    const std::byte* begin;
    const std::byte* end;
  };
  [[nodiscard]] Bytes bytes_of(const Part& part) const {
    return {part.data, part.data + (part.end - part.begin) * element_bytes_};
  }
  [[nodiscard]] std::vector<Bytes> sorted_bytes() const;
  [[nodiscard]] bool overlaps_itself() const;

  std::vector<Part> parts_;
  std::size_t element_bytes_ = 1;
  std::uintptr_t low_ = 0, high_ = 0;  // addresses that enclose all parts
};

}  // namespace paceline
