// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Folds a range of a step, run by run, over the pieces that its memories lie in.

#include <cstdint>
#include <vector>

#include "paceline/comm/call_state.h"
#include "paceline/kernel/fold.h"

namespace paceline {

/// Applies kernel::fold to steps. Keeps the list of terms between calls.
class Folder {
 public:
  Folder(int rank, int world) : rank_(rank), world_(world) {}

  /// dst = [incoming (+)] src of `from`, for elements [begin, begin + count). `incoming` may be
  /// null.
  void fold(const CallState& call,
            const plan::Step& step,
            const std::byte* incoming,
            std::uint64_t begin,
            std::uint64_t count);

 private:
  [[nodiscard]] Run run_of(
      const CallState& call, plan::Memory memory, int owner, int slot, std::uint64_t element) const;

  int rank_;
  int world_;
  std::vector<kernel::Term> terms_;
  std::vector<kernel::Target> targets_;
};

}  // namespace paceline
