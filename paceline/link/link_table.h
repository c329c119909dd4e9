// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// One rank's links by peer, the same for every kind of link.

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "paceline/base/error.h"

namespace paceline {

/// Links of a rank, indexed by peer; the own entry is empty.
///
/// Threads  Constant after construction; close() from any thread if LinkType's is.
template <typename LinkType>
class LinkTable {
 public:
  /// Adds the link to the next peer; null for the rank itself.
  void add(std::unique_ptr<LinkType> link) { links_.push_back(std::move(link)); }

  /// Errors  UsageError if there is no such peer.
  [[nodiscard]] LinkType& at(int peer) const {
    const auto index = static_cast<std::size_t>(peer);
    if (peer < 0 || index >= links_.size() || !links_[index])
      throw UsageError(fmt::format("there is no link to rank {}", peer));
    return *links_[index];
  }

  void close() noexcept {
    for_each([](LinkType& link) { link.close(); });
  }
  /// Does it for each peer.
  template <typename Verb>
  void for_each(const Verb& verb) const {
    for (const auto& link : links_)
      if (link) verb(*link);
  }

 private:
  std::vector<std::unique_ptr<LinkType>> links_;
};

}  // namespace paceline
