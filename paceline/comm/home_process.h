// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Tells a process from its forked children.

#include "paceline/net/fork.h"

namespace paceline {

/// The process in which this was made. A child that was forked from it has the memory of its
/// objects, but neither their threads nor their links.
class HomeProcess {
 public:
  [[nodiscard]] bool is_here() const { return net::fork_depth() == depth_; }

 private:
  unsigned depth_ = net::fork_depth();
};

}  // namespace paceline
