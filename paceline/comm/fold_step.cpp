// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/fold_step.h"

#include <algorithm>

#include "paceline/base/assert.h"

namespace paceline {

using plan::Memory;

void Folder::fold(const CallState& call,
                  const plan::Step& step,
                  const std::byte* incoming,
                  std::uint64_t begin,
                  std::uint64_t count) {
  const Descriptor& what = call.descriptor;
  while (count != 0) {
    const Run target = call.memory.locate(step.dst, step.peer, begin);
    std::uint64_t run = std::min(count, target.count);
    terms_.clear();
    if (incoming != nullptr) terms_.push_back({incoming, step.wire});
    for (int i = 0; i < step.from.size; ++i) {
      const int slot = (step.from.first + i) % world_;
      PACELINE_ASSERT(step.src == Memory::kInbox || slot == rank_, "a window on a framed link");
      const Run source = call.memory.locate(step.src, slot, begin);
      run = std::min(run, source.count);
      const Form form =
          slot == rank_ && step.src == Memory::kInbox ? Form::kT : CallMemory::form_of(step.src);
      terms_.push_back({source.data, form});
    }
    const kernel::Target into{target.data, CallMemory::form_of(step.dst)};
    kernel::fold(what.dtype, what.op, world_, run, terms_, {&into, 1});
    if (incoming != nullptr) incoming += run * size_of(what.dtype, step.wire);
    begin += run;
    count -= run;
  }
}

}  // namespace paceline
