// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What `paceline bench` was asked to do.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/types.h"

namespace paceline::apps {

enum class BenchLink : std::uint8_t { kAuto, kShm, kTcp, kMemory };
enum class BenchMemory : std::uint8_t { kResident, kPrivate };

/// "auto", "shm", "tcp", "memory": as PACELINE_LINK knows them.
[[nodiscard]] std::string_view name_of(BenchLink link) noexcept;
[[nodiscard]] std::string_view name_of(BenchMemory memory) noexcept;

/// As the user wrote it.
struct BenchWords {
  std::string what;
  int ranks = 2;
  std::string link = "auto";
  std::string memory = "resident";
  std::string dtype = "f32";
  std::optional<std::string> sizes = {};
  double seconds = 1;
};

struct BenchOptions {
  std::optional<Collective> what = {};  ///< nothing: the bare futex barrier
  int ranks = 2;
  BenchLink link = BenchLink::kAuto;
  BenchMemory memory = BenchMemory::kResident;
  Dtype dtype = Dtype::kF32;
  std::vector<std::uint64_t> sizes = {};  ///< bytes; a single 0 for what moves nothing
  double seconds = 1;                     ///< for each size
};

/// "allreduce", …, "futex".
[[nodiscard]] std::string_view subject_of(const BenchOptions& options) noexcept;
/// Whether it has no buffer.
[[nodiscard]] bool moves_nothing(const BenchOptions& options) noexcept;

/// Errors  UsageError that names the option, its value and what it may be.
[[nodiscard]] BenchOptions bench_options_from(const BenchWords& words);

/// The command line that gives these options again, from "bench" on.
[[nodiscard]] std::vector<std::string> arguments_of(const BenchOptions& options);

}  // namespace paceline::apps
