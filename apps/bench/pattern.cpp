// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace paceline::apps {
namespace {

constexpr std::size_t kTileElements = std::size_t{3} << 10;

constexpr int kF16Bias = 15, kF32Bias = 127, kF32Mantissa = 23, kF16Mantissa = 10;
constexpr std::uint32_t kLowBF16 = 0xffff, kLowF16 = (1U << (kF32Mantissa - kF16Mantissa)) - 1;
constexpr double kLargestF16 = 65504;

std::uint32_t bits_of(double value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

/// Whether `value`, a whole number, is one of the type's.
bool holds(Dtype dtype, double value) {
  switch (dtype) {
    case Dtype::kF32: return std::isfinite(value) && static_cast<float>(value) == value;
    case Dtype::kBF16: return holds(Dtype::kF32, value) && (bits_of(value) & kLowBF16) == 0;
    case Dtype::kF16:
      return value <= kLargestF16 && holds(Dtype::kF32, value) && (bits_of(value) & kLowF16) == 0;
    default: return std::isfinite(value);
  }
}

template <typename T>
void store(T value, std::span<std::byte> into) {
  std::memcpy(into.data(), &value, into.size());
}

/// Half precision of a normal number that it holds.
std::uint16_t f16_of(double value) {
  const std::uint32_t bits = bits_of(value) >> (kF32Mantissa - kF16Mantissa);
  return static_cast<std::uint16_t>(bits - ((kF32Bias - kF16Bias) << kF16Mantissa));
}

void store_float(Dtype dtype, double value, std::span<std::byte> into) {
  switch (dtype) {
    case Dtype::kF32: return store(static_cast<float>(value), into);
    case Dtype::kBF16: return store(static_cast<std::uint16_t>(bits_of(value) >> 16U), into);
    case Dtype::kF16: return store(f16_of(value), into);
    default: return store(value, into);
  }
}

void store_number(
    Dtype dtype, std::uint64_t number, int factor, int times, std::span<std::byte> into) {
  auto whole = number;
  auto real = static_cast<double>(number);
  for (int i = 0; i < times; ++i) {
    whole *= static_cast<std::uint64_t>(factor);
    real *= factor;
  }
  if (is_floating(dtype)) return store_float(dtype, real, into);
  std::memcpy(into.data(), &whole, into.size());  // the low bytes: little-endian, as on all links
}

Pattern::Numbers numbers_of_rank(int rank) {
  const auto r = static_cast<std::uint64_t>(rank);
  return {1 + r % 3, 1 + (r + 1) % 3, 1 + (r + 2) % 3};
}

Pattern::Numbers numbers_of_sum(int world) {
  Pattern::Numbers sum{};
  for (int rank = 0; rank < world; ++rank) {
    const Pattern::Numbers numbers = numbers_of_rank(rank);
    for (std::size_t i = 0; i < sum.size(); ++i) sum.at(i) += numbers.at(i);
  }
  return sum;
}

/// Whether `world` ranks that hold `value` have an exact sum, in the bits of a double too.
bool sums_exactly(Dtype dtype, int world, double value) {
  for (int terms = 1; terms <= world; ++terms) {
    const double sum = terms * value;
    if (std::fma(terms, value, -sum) != 0) return false;
    if (!holds(terms == world ? dtype : accumulation_type(dtype), sum)) return false;
  }
  return true;
}

}  // namespace

Pattern::Pattern(Dtype dtype, const Numbers& numbers, int factor, int times)
    : element_bytes_(size_of(dtype)), tile_((kTileElements + kPeriod) * element_bytes_) {
  const std::span<std::byte> all(tile_);
  for (std::size_t e = 0; e < kPeriod; ++e) {
    store_number(dtype, numbers.at(e), factor, times,
                 all.subspan(e * element_bytes_, element_bytes_));
  }
  for (std::size_t done = kPeriod * element_bytes_; done < tile_.size();) {
    const std::size_t more = std::min(done, tile_.size() - done);
    std::memcpy(tile_.data() + done, tile_.data(), more);
    done += more;
  }
}

std::span<const std::byte> Pattern::tile(std::uint64_t first, std::size_t most) const {
  const std::size_t begin = (first % kPeriod) * element_bytes_;
  return std::span(tile_).subspan(begin, std::min(most, kTileElements * element_bytes_));
}

void Pattern::fill(std::span<std::byte> into, std::uint64_t first) const {
  while (!into.empty()) {
    const auto part = tile(first, into.size());
    std::memcpy(into.data(), part.data(), part.size());
    into = into.subspan(part.size());
  }
}

std::optional<std::size_t> Pattern::difference(std::span<const std::byte> data,
                                               std::uint64_t first) const {
  for (std::size_t done = 0; done < data.size();) {
    const auto part = tile(first, data.size() - done);
    if (std::memcmp(data.data() + done, part.data(), part.size()) != 0) {
      const auto at = std::ranges::mismatch(part, data.subspan(done)).in1 - part.begin();
      return done + static_cast<std::size_t>(at);
    }
    done += part.size();
  }
  return std::nullopt;
}

Pattern pattern_of_rank(Dtype dtype, int rank) { return {dtype, numbers_of_rank(rank)}; }

Pattern pattern_of_sum(Dtype dtype, int world, int calls) {
  return {dtype, numbers_of_sum(world), world, calls - 1};
}

int exact_calls(Dtype dtype, int world, int most) {
  if (!is_floating(dtype)) return most;
  const Pattern::Numbers sums = numbers_of_sum(world);
  int calls = 1;
  for (double factor = 1; calls < most; factor *= world, ++calls) {
    const auto exact = [&](std::uint64_t sum) {
      return sums_exactly(dtype, world, static_cast<double>(sum) * factor);
    };
    if (!std::ranges::all_of(sums, exact)) break;
  }
  return calls;
}

}  // namespace paceline::apps
