// SPDX-License-Identifier: Apache-2.0
#include "paceline/base/types.h"

#include <array>

namespace paceline {
namespace {
template <typename E, std::size_t N>
std::string_view pick(const std::array<std::string_view, N>& names, E value) noexcept {
  const auto i = static_cast<std::size_t>(value);
  return i < N ? names[i] : "unknown";
}
}  // namespace

std::size_t size_of(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::kF64:
    case Dtype::kI64: return 8;
    case Dtype::kF32:
    case Dtype::kI32: return 4;
    case Dtype::kF16:
    case Dtype::kBF16: return 2;
    case Dtype::kU8: return 1;
  }
  return 0;
}

Dtype accumulation_type(Dtype dtype) noexcept {
  return dtype == Dtype::kF16 || dtype == Dtype::kBF16 ? Dtype::kF32 : dtype;
}

bool is_floating(Dtype dtype) noexcept {
  return dtype == Dtype::kF32 || dtype == Dtype::kF64 || accumulation_type(dtype) != dtype;
}

std::size_t size_of(Dtype dtype, Form form) noexcept {
  return size_of(form == Form::kT ? dtype : accumulation_type(dtype));
}

std::string_view name_of(Dtype dtype) noexcept {
  static constexpr std::array<std::string_view, 7> kNames{"f32", "f64", "f16", "bf16",
                                                          "u8",  "i32", "i64"};
  return pick(kNames, dtype);
}
std::string_view name_of(ReduceOp op) noexcept {
  static constexpr std::array<std::string_view, 4> kNames{"sum", "mean", "min", "max"};
  return pick(kNames, op);
}
std::string_view name_of(Collective collective) noexcept {
  static constexpr std::array<std::string_view, 5> kNames{"allreduce", "reduce_scatter",
                                                          "allgather", "broadcast", "barrier"};
  return pick(kNames, collective);
}
std::string_view name_of(Algorithm algorithm) noexcept {
  static constexpr std::array<std::string_view, 6> kNames{"ring", "pairwise", "one_stage",
                                                          "tree", "relay",    "direct"};
  return pick(kNames, algorithm);
}
}  // namespace paceline
