// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Element values that are likely to break a kernel, and memory in which a stray access shows.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "paceline/kernel/fold.h"

namespace paceline::kernel {

/// splitmix64: the same values on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// Magnitudes: zero, subnormals, around one, halfway between 16-bit values, the largest, infinity,
/// quiet and signalling NaN with payloads. Each comes with either sign.
inline constexpr std::array<std::uint64_t, 19> kSpecialF32{
    0,          1,          0x007fffff, 0x00800000, 0x33000000, 0x33000001, 0x33800000,
    0x387fe000, 0x3f800000, 0x3f808000, 0x3f801000, 0x3f818000, 0x477fefff, 0x477ff000,
    0x7f7f8000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc12345};
inline constexpr std::array<std::uint64_t, 9> kSpecialF64{0,
                                                          1,
                                                          0x000fffffffffffff,
                                                          0x0010000000000000,
                                                          0x3ff0000000000000,
                                                          0x7fefffffffffffff,
                                                          0x7ff0000000000000,
                                                          0x7ff0000000000001,
                                                          0x7ff8000012345678};
inline constexpr std::array<std::uint64_t, 10> kSpecialF16{0,      1,      0x03ff, 0x0400, 0x3c00,
                                                           0x3c01, 0x7bff, 0x7c00, 0x7c01, 0x7e55};
inline constexpr std::array<std::uint64_t, 10> kSpecialBF16{0,      1,      0x007f, 0x0080, 0x3f80,
                                                            0x3f81, 0x7f7f, 0x7f80, 0x7f81, 0x7fd5};
inline constexpr std::array<std::uint64_t, 3> kSpecialInteger{0, 1, 0x7fffffffffffffff};

/// Special bit patterns of elements of `dtype`.
inline std::span<const std::uint64_t> special_values(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return kSpecialF32;
    case Dtype::kF64: return kSpecialF64;
    case Dtype::kF16: return kSpecialF16;
    case Dtype::kBF16: return kSpecialBF16;
    default: return kSpecialInteger;
  }
}

/// Bits of 1.0 and the number of bits below the exponent, to make ordinary values from.
struct Ordinary {
  std::uint64_t one;
  int fraction_bits;
};
inline Ordinary ordinary(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return {0x3f800000, 23};
    case Dtype::kF64: return {0x3ff0000000000000, 52};
    case Dtype::kF16: return {0x3c00, 10};
    case Dtype::kBF16: return {0x3f80, 7};
    default: return {0, 0};
  }
}

/// Bits of one element: now and then special or random, mostly between 2^-4 and 2^4, either sign.
inline std::uint64_t random_element(Dtype dtype, Random& random) {
  const std::uint64_t choice = random.next() % 16;
  const std::uint64_t bits = random.next();
  if (choice < 2 || !is_floating(dtype)) return bits;
  const std::size_t size = size_of(dtype);
  const std::uint64_t sign = (bits >> 63) << (8 * size - 1);
  if (choice == 2) {
    const auto values = special_values(dtype);
    return sign | values[bits % values.size()];
  }
  const Ordinary o = ordinary(dtype);
  const std::uint64_t span = std::uint64_t{1} << (o.fraction_bits + 3);
  return sign | (o.one - span / 2 + bits % span);
}

/// `count` elements whose last byte is the last one of an allocation, so that a sanitizer sees an
/// access behind it; the first lies `skew` bytes past an aligned address.
class Operand {
 public:
  Operand(Dtype dtype, Form form, std::size_t count, std::size_t skew)
      : size_(size_of(dtype, form)), bytes_(count * size_ + skew, kFill), skew_(skew) {}

  void fill(Dtype dtype, Random& random) {
    for (std::size_t i = 0; i < count(); ++i) set(i, random_element(dtype, random));
  }
  void set(std::size_t i, std::uint64_t bits) {
    std::memcpy(bytes_.data() + skew_ + i * size_, &bits, size_);
  }
  [[nodiscard]] std::uint64_t get(std::size_t i) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes_.data() + skew_ + i * size_, size_);
    return bits;
  }
  [[nodiscard]] std::size_t count() const { return (bytes_.size() - skew_) / size_; }
  /// The last `n` elements.
  [[nodiscard]] std::byte* last(std::size_t n) {
    return bytes_.data() + (bytes_.size() - n * size_);
  }
  /// Also the bytes before the first element.
  [[nodiscard]] bool same_bytes(const Operand& other) const { return bytes_ == other.bytes_; }

  static constexpr std::byte kFill{0xa5};

 private:
  std::size_t size_;
  std::vector<std::byte> bytes_;
  std::size_t skew_;
};

}  // namespace paceline::kernel
