// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/memory_limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

namespace paceline::net {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;  // the older layout writes 2^63 - 4096

/// The number after `key` (none: at the start) of a file of lines "key value"; "max" is no number.
std::optional<std::uint64_t> number_in(const fs::path& path, std::string_view key = {}) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::uint64_t value = 0;
    if (!key.empty() && word != key) {
      file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
      continue;
    }
    if (key.empty()) file.seekg(0);
    if (file >> value) return value;
    break;
  }
  return std::nullopt;
}

/// Where one layout of control groups keeps what.
struct Layout {
  std::string_view prefix;  // of the line in /proc/self/cgroup, up to the group's name
  std::string_view mount;
  std::string_view limit, usage;
  std::array<std::string_view, 2> caches;  // in memory.stat: pages of files, which can be dropped
};

constexpr Layout kUnified{
    "0::", "sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}};
constexpr Layout kLegacy{"memory:",
                         "sys/fs/cgroup/memory",
                         "memory.limit_in_bytes",
                         "memory.usage_in_bytes",
                         {"total_inactive_file", "total_active_file"}};

void cut_by_group(const Layout& layout,
                  const fs::path& directory,
                  const std::string& group,
                  MemoryHeadroom& tightest) {
  const auto limit = number_in(directory / layout.limit);
  const auto usage = number_in(directory / layout.usage);
  if (!limit || !usage || *limit >= kUnlimited) return;
  std::uint64_t cache = 0;
  for (const auto key : layout.caches)
    cache += number_in(directory / "memory.stat", key).value_or(0);
  const std::uint64_t used = *usage - std::min(*usage, cache);
  const std::uint64_t free = *limit - std::min(*limit, used);
  if (free >= tightest.free_bytes) return;
  tightest = {.free_bytes = free,
              .limit_bytes = *limit,
              .limit = fmt::format("the memory limit of control group '{}'", group)};
}

/// This process's own group and its parents; in a container, the group that it shows as its root.
void cut_by_groups(const Layout& layout, const fs::path& root, MemoryHeadroom& tightest) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find(layout.prefix);
    if (at == std::string::npos || (layout.prefix.starts_with('0') && at != 0)) continue;
    const fs::path name = fs::path(line.substr(at + layout.prefix.size())).relative_path();
    for (fs::path group = name;; group = group.parent_path()) {
      cut_by_group(layout, root / layout.mount / group, "/" + group.string(), tightest);
      if (group.empty()) break;
    }
  }
}

}  // namespace

MemoryHeadroom memory_headroom(const fs::path& root) {
  constexpr std::uint64_t kKibi = 1024;
  const fs::path meminfo = root / "proc/meminfo";
  const auto available = number_in(meminfo, "MemAvailable:");
  MemoryHeadroom tightest{.free_bytes = available ? *available * kKibi : kUnlimited,
                          .limit_bytes = number_in(meminfo, "MemTotal:").value_or(0) * kKibi,
                          .limit = "the machine's memory"};
  cut_by_groups(kUnified, root, tightest);
  cut_by_groups(kLegacy, root, tightest);
  return tightest;
}

std::uint64_t physical_memory_bytes() {
  const auto pages = std::max(0L, ::sysconf(_SC_PHYS_PAGES));
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string name_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 10 * 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

}  // namespace paceline::net
