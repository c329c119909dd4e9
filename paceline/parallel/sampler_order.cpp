// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/sampler_order.h"

#include <bit>
#include <numeric>
#include <utility>

namespace paceline {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

// One output of SplitMix64 (Steele, Lea, Flood 2014) for the state `x`.
std::uint64_t mix(std::uint64_t x) noexcept {
  x += kGolden;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t as_unsigned(int value) noexcept { return static_cast<std::uint64_t>(value); }

}  // namespace

ShuffleGenerator::ShuffleGenerator(std::uint64_t key) noexcept : state_{} {
  for (auto& word : state_) {
    word = mix(key);
    key += kGolden;
  }
}

std::uint64_t ShuffleGenerator::next() noexcept {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t ShuffleGenerator::below(std::uint64_t bound) noexcept {
  const auto bits = std::bit_width(bound - 1);
  if (bits == 0) return 0;
  for (;;) {
    const std::uint64_t drawn = next() >> (64 - bits);
    if (drawn < bound) return drawn;
  }
}

std::uint64_t shuffle_key(std::uint64_t seed, std::uint64_t epoch) noexcept {
  return mix(mix(seed) + epoch);
}

std::vector<std::uint64_t> shuffled_order(std::uint64_t size,
                                          std::uint64_t seed,
                                          std::uint64_t epoch) {
  std::vector<std::uint64_t> order(size);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  ShuffleGenerator generator(shuffle_key(seed, epoch));
  for (std::uint64_t i = size; i > 1; --i) std::swap(order[i - 1], order[generator.below(i)]);
  return order;
}

std::uint64_t Pass::total() const noexcept {
  const std::uint64_t left = size - base;
  const std::uint64_t ranks = as_unsigned(world);
  switch (tail) {
    case Tail::kPad: return (left / ranks + (left % ranks != 0 ? 1 : 0)) * ranks;
    case Tail::kDrop: return left / ranks * ranks;
    case Tail::kKeep: break;
  }
  return left;
}

std::uint64_t Pass::count() const noexcept {
  const std::uint64_t all = total();
  return all / as_unsigned(world) + (as_unsigned(rank) < all % as_unsigned(world) ? 1 : 0);
}

std::uint64_t Pass::position(std::uint64_t k) const noexcept {
  return (base + k * as_unsigned(world) + as_unsigned(rank)) % size;
}

std::uint64_t Pass::consumed(std::uint64_t samples) const noexcept {
  // Divided, not multiplied: a caller may ask for any number of samples.
  const std::uint64_t all = total();
  if (samples >= all / as_unsigned(world) + (all % as_unsigned(world) != 0 ? 1 : 0)) return size;
  return base + samples * as_unsigned(world);
}

}  // namespace paceline
