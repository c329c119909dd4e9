// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/shm/waiting.h"

#include <bit>

namespace paceline::link {
namespace {

constexpr std::size_t kBits = 64;

std::uint32_t kind_of(int stage) {
  return Wish::kStageUnit * (1 + static_cast<std::uint32_t>(stage));
}

bool has(const Wish& wish, int rank) {
  const auto bit = static_cast<std::size_t>(rank);
  return (wish.ranks[bit / kBits].load(std::memory_order_relaxed) >> bit % kBits & 1) != 0;
}

}  // namespace

void Waiting::post(int stage, std::uint64_t value) noexcept {
  counter(rank_, stage).store(value, std::memory_order_seq_cst);
  for (int rank = 0; rank < static_cast<int>(words_.size()); ++rank) {
    WaitWords& words = at(rank);
    if (rank != rank_ && words.bell.is_asleep() && grants(words.wish, stage)) words.bell.ring();
  }
}

void Waiting::ring_for_bytes(int rank) noexcept {
  WaitWords& words = at(rank);
  if (!words.bell.is_asleep()) return;
  if ((words.wish.kind.load(std::memory_order_relaxed) & Wish::kBytes) != 0) words.bell.ring();
}

/// Posts of different stages or values do not fit into a wish: such a sleeper looks at every post.
void Waiting::write_wish(std::span<const Interest> interests) noexcept {
  Wish& wish = at(rank_).wish;
  std::uint32_t bytes = 0;
  const Interest* first = nullptr;
  bool alike = true;
  for (auto& word : wish.ranks) word.store(0, std::memory_order_relaxed);
  for (const Interest& interest : interests) {
    if (interest.send || interest.recv) bytes = Wish::kBytes;
    if (interest.stage < 0) continue;
    if (first == nullptr) first = &interest;
    alike = alike && interest.stage == first->stage && interest.post == first->post;
    const auto bit = static_cast<std::size_t>(interest.peer);
    auto& word = wish.ranks[bit / kBits];
    word.store(word.load(std::memory_order_relaxed) | std::uint64_t{1} << bit % kBits,
               std::memory_order_relaxed);
  }
  wish.value.store(first == nullptr ? 0 : first->post, std::memory_order_relaxed);
  const std::uint32_t posts = first == nullptr ? 0 : alike ? kind_of(first->stage) : Wish::kAnyPost;
  wish.kind.store(bytes | posts, std::memory_order_relaxed);
}

bool Waiting::grants(const Wish& wish, int stage) const noexcept {
  const std::uint32_t posts = wish.kind.load(std::memory_order_relaxed) & ~Wish::kBytes;
  if (posts == Wish::kAnyPost) return true;
  return posts == kind_of(stage) && has(wish, rank_) && all_have_posted(wish, stage);
}

bool Waiting::all_have_posted(const Wish& wish, int stage) const noexcept {
  const std::uint64_t value = wish.value.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i * kBits < words_.size(); ++i) {
    std::uint64_t left = wish.ranks[i].load(std::memory_order_relaxed);
    for (; left != 0; left &= left - 1) {
      const auto rank = i * kBits + static_cast<std::size_t>(std::countr_zero(left));
      if (rank >= words_.size()) break;
      if (counter(static_cast<int>(rank), stage).load(std::memory_order_seq_cst) < value)
        return false;
    }
  }
  return true;
}

}  // namespace paceline::link
