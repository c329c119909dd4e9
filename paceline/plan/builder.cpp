// SPDX-License-Identifier: Apache-2.0
#include "paceline/plan/builder.h"

namespace paceline::plan {

Builder::Builder(const Shape& shape) : shape_(shape) {
  schedule_.in = all();
  schedule_.out = all();
}

std::uint16_t Builder::wrap(long rank) const noexcept {
  const long n = world();
  return static_cast<std::uint16_t>((rank % n + n) % n);
}

Ranks Builder::all_from(long first) const noexcept {
  return {wrap(first), static_cast<std::uint16_t>(world())};
}

void Builder::set_sum() noexcept {
  schedule_.sum = all();
  schedule_.sum_over_out = schedule_.out == all();
}

void Builder::send(Memory src, Range elements, long to) {
  schedule_.steps.push_back({.kind = Kind::kSend,
                             .src = src,
                             .wire = src == Memory::kSum ? Form::kSum : Form::kT,
                             .peer = wrap(to),
                             .elements = elements});
}

void Builder::receive(Memory dst, Range elements, long from) {
  schedule_.steps.push_back({.kind = Kind::kRecv,
                             .dst = dst,
                             .peer = wrap(from),
                             .to = one(rank()),
                             .elements = elements});
}

void Builder::receive_and_add(Form wire, Memory dst, Range elements, long from) {
  schedule_.steps.push_back({.kind = Kind::kRecv,
                             .src = Memory::kIn,
                             .dst = dst,
                             .wire = wire,
                             .peer = wrap(from),
                             .from = one(rank()),
                             .to = one(rank()),
                             .elements = elements});
}

Ranks Builder::others() const noexcept {
  return {wrap(rank() + 1), static_cast<std::uint16_t>(world() - 1)};
}

void Builder::fold(Memory src, Ranks from, Memory dst, Ranks to, Range elements) {
  if (elements.empty()) return;
  schedule_.steps.push_back(
      {.kind = Kind::kFold, .src = src, .dst = dst, .from = from, .to = to, .elements = elements});
}

void Builder::fold_inbox(Ranks from, Range elements) {
  fold(Memory::kInbox, from, Memory::kOut, one(rank()), elements);
}

void Builder::copy(Range elements) {
  fold(Memory::kIn, one(rank()), Memory::kOut, one(rank()), elements);
}

void Builder::post(int flag, Ranks to, Range elements) {
  schedule_.steps.push_back({.kind = Kind::kPost,
                             .flag = static_cast<std::uint16_t>(flag),
                             .to = to,
                             .elements = elements});
}

void Builder::await(int flag, Ranks from, Range elements) {
  schedule_.steps.push_back({.kind = Kind::kAwait,
                             .flag = static_cast<std::uint16_t>(flag),
                             .from = from,
                             .elements = elements});
}

}  // namespace paceline::plan
