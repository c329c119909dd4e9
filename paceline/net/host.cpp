// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/host.h"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

namespace fs = std::filesystem;

/// First line of a file; empty if there is none.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<std::int64_t> to_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int cores_of_affinity() {
  constexpr std::size_t kMostCores = 1 << 16;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(kMostCores),
                                                             [](cpu_set_t* raw) { CPU_FREE(raw); });
  const std::size_t size = CPU_ALLOC_SIZE(kMostCores);
  if (set != nullptr && ::sched_getaffinity(0, size, set.get()) == 0)
    return CPU_COUNT_S(size, set.get());
  return static_cast<int>(std::thread::hardware_concurrency());
}

/// This process's own group and its parents, in the unified hierarchy.
int cut_by_unified_groups(int cores) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::/")) continue;
    const fs::path root = "/sys/fs/cgroup";
    for (fs::path group = fs::path(line.substr(3)).relative_path();; group = group.parent_path()) {
      cores = std::min(cores, cores_of_quota(first_line(root / group / "cpu.max")).value_or(cores));
      if (group.empty()) break;
    }
  }
  return cores;
}

/// The older layout, as containers see it.
int cut_by_legacy_group(int cores) {
  const fs::path group = "/sys/fs/cgroup/cpu";
  const std::string both =
      first_line(group / "cpu.cfs_quota_us") + ' ' + first_line(group / "cpu.cfs_period_us");
  return std::min(cores, cores_of_quota(both).value_or(cores));
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) throw_errno("asking for the host's name");
  return name.data();
}

std::optional<int> cores_of_quota(std::string_view cpu_max) {
  const std::size_t space = cpu_max.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto quota = to_number(cpu_max.substr(0, space));  // "max" is no number: unlimited
  const auto period = to_number(cpu_max.substr(space + 1));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<std::int64_t>(*quota / *period, 1, 1 << 20));
}

int usable_cores() {
  return std::max(1, cut_by_legacy_group(cut_by_unified_groups(cores_of_affinity())));
}

std::vector<std::string> environment_variables() {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    result.emplace_back(*entry);
  return result;
}

int process_id() noexcept { return ::getpid(); }

std::uint32_t user_id() noexcept { return ::geteuid(); }

std::array<char, 32> random_digits() {
  std::array<char, 32> digits{};
  std::array<std::uint8_t, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw_errno("asking for random numbers");
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (std::size_t i = 0; i < digits.size(); ++i)
    digits[i] = kDigits[(static_cast<unsigned>(bytes[i / 2]) >> (i % 2 == 0 ? 4U : 0U)) & 15U];
  return digits;
}

std::string host_identity() {
  constexpr std::array<std::pair<const char*, const char*>, 4> kNamespaces{
      {{"network", "net"}, {"ipc", "ipc"}, {"user", "user"}, {"pid", "pid"}}};
  std::string text = "host: " + first_line("/proc/sys/kernel/random/boot_id");
  for (const auto& [word, file] : kNamespaces) {
    std::error_code error;  // without /proc all look alike, and the descriptor's pass decides
    const fs::path target = fs::read_symlink(fs::path("/proc/self/ns") / file, error);
    text += std::string("\n") + word + " namespace: " + target.string();
  }
  return text;
}

}  // namespace paceline::net
