// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/fold_step.h"

#include <algorithm>

#include "paceline/base/assert.h"

namespace paceline {

using plan::Memory;

// Memory of `owner` from `element` on: its own, or its window.
Run Folder::run_of(
    const CallState& call, Memory memory, int owner, int slot, std::uint64_t element) const {
  if (owner == rank_) return call.memory.locate(memory, slot, element);
  PACELINE_ASSERT(call.over_windows, "a window on a framed link");
  return call.windows[static_cast<std::size_t>(owner)].locate(memory, element);
}

void Folder::fold(const CallState& call,
                  const plan::Step& step,
                  const std::byte* incoming,
                  std::uint64_t begin,
                  std::uint64_t count) {
  const Descriptor& what = call.descriptor;
  while (count != 0) {
    std::uint64_t run = count;
    terms_.clear();
    targets_.clear();
    for (int i = 0; i < step.to.size; ++i) {
      const Run target = run_of(call, step.dst, (step.to.first + i) % world_, step.peer, begin);
      run = std::min(run, target.count);
      targets_.push_back({target.data, CallMemory::form_of(step.dst)});
    }
    if (incoming != nullptr) terms_.push_back({incoming, step.wire});
    for (int i = 0; i < step.from.size; ++i) {
      const int slot = (step.from.first + i) % world_;
      const int owner = step.src == Memory::kInbox ? rank_ : slot;
      const Run source = run_of(call, step.src, owner, slot, begin);
      run = std::min(run, source.count);
      const Form form =
          slot == rank_ && step.src == Memory::kInbox ? Form::kT : CallMemory::form_of(step.src);
      terms_.push_back({source.data, form});
    }
    const bool adds = call.adds && step.dst == Memory::kOut;
    kernel::fold(what.dtype, what.op, world_, run, terms_, targets_, adds ? &*call.adds : nullptr);
    if (incoming != nullptr) incoming += run * size_of(what.dtype, step.wire);
    begin += run;
    count -= run;
  }
}

}  // namespace paceline
