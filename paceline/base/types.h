// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The vocabulary that every room shares: element types, reductions, collectives, ranges.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace paceline {

/// The most ranks of a job: their numbers travel as 16 bits.
inline constexpr int kMaxWorldSize = 65535;

/// Element type of a buffer. Values travel in descriptors: never renumber.
enum class Dtype : std::uint8_t { kF32, kF64, kF16, kBF16, kU8, kI32, kI64 };

/// Elementwise reduction. kMean divides by the world size once, after the sum; floats only.
enum class ReduceOp : std::uint8_t { kSum, kMean, kMin, kMax };

/// What a call does. Values travel in descriptors: never renumber.
enum class Collective : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier
};

/// How a call does it. All but kRelay add in the same order, so the choice never changes a bit.
enum class Algorithm : std::uint8_t { kRing, kPairwise, kOneStage, kTree, kRelay, kDirect };

/// Adds scale · result to what is there, instead of replacing it. F32 and F64 only.
///
/// Numerics  `scale` is rounded to the type. Fused: the sum is rounded once; else the product too.
struct ScaledAdd {
  double scale = 1;
  bool fused = true;
  bool operator==(const ScaledAdd&) const = default;
};

/// How a term is represented: as T, or as T's accumulation type (F32 for 16-bit floats, else T).
enum class Form : std::uint8_t { kT, kSum };

/// An IEEE 754 binary16 value, as bits. Storage only: arithmetic happens in float.
struct Float16 {
  std::uint16_t bits = 0;
  bool operator==(const Float16&) const = default;
};

/// A bfloat16 value, as bits. Storage only: arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits = 0;
  bool operator==(const BFloat16&) const = default;
};

/// The element types that collectives know.
template <typename T>
concept Reducible = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, Float16> ||
    std::same_as<T, BFloat16> || std::same_as<T, std::uint8_t> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::int64_t>;

template <Reducible T>
[[nodiscard]] constexpr Dtype dtype_of() noexcept {
  if constexpr (std::same_as<T, float>) return Dtype::kF32;
  if constexpr (std::same_as<T, double>) return Dtype::kF64;
  if constexpr (std::same_as<T, Float16>) return Dtype::kF16;
  if constexpr (std::same_as<T, BFloat16>) return Dtype::kBF16;
  if constexpr (std::same_as<T, std::uint8_t>) return Dtype::kU8;
  if constexpr (std::same_as<T, std::int32_t>) return Dtype::kI32;
  if constexpr (std::same_as<T, std::int64_t>) return Dtype::kI64;
}

/// Half-open range [begin, end) of logical elements.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return end - begin; }
  [[nodiscard]] constexpr bool empty() const noexcept { return begin == end; }
  bool operator==(const Range&) const = default;
};

/// Bytes of one element of `dtype`; 0 for a value that is none of its names.
[[nodiscard]] std::size_t size_of(Dtype dtype) noexcept;
/// Type in which sums of `dtype` are held: kF32 for 16-bit floats, else `dtype` itself.
[[nodiscard]] Dtype accumulation_type(Dtype dtype) noexcept;
/// Whether `dtype` is a floating-point type.
[[nodiscard]] bool is_floating(Dtype dtype) noexcept;
/// Bytes of one element of `dtype` in `form`.
[[nodiscard]] std::size_t size_of(Dtype dtype, Form form) noexcept;

/// Names as they stand in messages and options: "f32", "mean", "allreduce", "one_stage".
[[nodiscard]] std::string_view name_of(Dtype dtype) noexcept;
[[nodiscard]] std::string_view name_of(ReduceOp op) noexcept;
[[nodiscard]] std::string_view name_of(Collective collective) noexcept;
[[nodiscard]] std::string_view name_of(Algorithm algorithm) noexcept;

}  // namespace paceline
