// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/arithmetic.h"

#include <algorithm>
#include <cstring>

namespace paceline::sim {

using plan::Memory;

void Arithmetic::apply(const plan::Step& step,
                       int rank,
                       Range elements,
                       std::span<const std::byte> incoming,
                       const MemoryOf& memory_of) {
  const std::size_t wire_bytes = size_of(dtype_, step.wire);
  for (std::uint64_t e = elements.begin; e < elements.end;) {
    terms_.clear();
    targets_.clear();
    if (step.kind == plan::Kind::kRecv) {
      terms_.push_back({incoming.data() + (e - elements.begin) * wire_bytes, step.wire});
    }
    const std::uint64_t n = std::min(elements.end - e, gather(step, rank, e, memory_of));
    fold(n);
    e += n;
  }
}

// Collects terms and targets of `element`; says for how many elements they lie side by side.
std::uint64_t Arithmetic::gather(const plan::Step& step,
                                 int rank,
                                 std::uint64_t element,
                                 const MemoryOf& memory_of) {
  std::uint64_t together = ~std::uint64_t{0};
  for (int i = 0; i < step.from.size; ++i) {
    const int q = (step.from.first + i) % world_;
    const bool slot = step.src == Memory::kInbox;
    const Memory memory = slot && q == rank ? Memory::kIn : step.src;
    const Stretch s = slot || q == rank ? memory_of(rank).at(memory, q, element)
                                        : memory_of(q).at_window(memory, element);
    terms_.push_back({s.data, s.form});
    together = std::min(together, s.count);
  }
  for (int i = 0; i < step.to.size; ++i) {
    const int q = (step.to.first + i) % world_;
    const Stretch s = q == rank ? memory_of(q).at(step.dst, step.peer, element)
                                : memory_of(q).at_window(step.dst, element);
    targets_.push_back({s.data, step.dst == Memory::kSum ? Form::kSum : Form::kT});
    together = std::min(together, s.count);
  }
  return together;
}

// Computes once, then stores: with several targets, one may be another's term.
void Arithmetic::fold(std::uint64_t count) {
  if (targets_.size() == 1) {
    return reference_fold(dtype_, op_, world_, count, terms_, targets_[0]);
  }
  const Form form = targets_[0].form;
  value_.resize(count * size_of(dtype_, form));
  reference_fold(dtype_, op_, world_, count, terms_, {value_.data(), form});
  for (const Target& target : targets_) std::memcpy(target.data, value_.data(), value_.size());
}

std::vector<std::byte> Arithmetic::load(const plan::Step& step,
                                        Range elements,
                                        CallMemory& memory) const {
  const std::size_t bytes = size_of(dtype_, step.wire);
  std::vector<std::byte> payload(elements.size() * bytes);
  for (std::uint64_t e = elements.begin; e < elements.end;) {
    const Stretch from = memory.at(step.src, 0, e);
    const std::uint64_t n = std::min(elements.end - e, from.count);
    std::memcpy(payload.data() + (e - elements.begin) * bytes, from.data, n * bytes);
    e += n;
  }
  return payload;
}

}  // namespace paceline::sim
