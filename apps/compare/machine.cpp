// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/machine.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "paceline/net/host.h"

namespace paceline::apps {
namespace {

/// What stands behind the first `key` in a file of "key : value" lines.
std::string value_of(const char* file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (colon != std::string::npos && begin != std::string::npos) return line.substr(begin);
  }
  return {};
}

std::string first_line(const char* file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

std::string or_unknown(std::string text) { return text.empty() ? "unknown" : text; }

std::uint64_t memory_bytes() {
  const std::string kilobytes = value_of("/proc/meminfo", "MemTotal");
  const bool is_number = !kilobytes.empty() && kilobytes.front() >= '0' && kilobytes.front() <= '9';
  return is_number ? 1024 * std::stoull(kilobytes) : 0;
}

}  // namespace

Machine this_machine() {
  const std::string release = first_line("/proc/sys/kernel/osrelease");
  return {.cores = net::usable_cores(),
          .cpu = or_unknown(value_of("/proc/cpuinfo", "model name")),
          .memory_bytes = memory_bytes(),
          .system = release.empty() ? "unknown" : "Linux " + release,
          .load = std::strtod(first_line("/proc/loadavg").c_str(), nullptr)};
}

}  // namespace paceline::apps
