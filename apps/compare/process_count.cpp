// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/process_count.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace paceline::apps {
namespace {

namespace fs = std::filesystem;

/// The number behind `key` in /proc/<pid>/status.
std::optional<int> status_of(int pid, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stoi(line.substr(key.size() + 1));
  }
  return std::nullopt;
}

/// Every process and its parent.
std::map<int, int> parents() {
  std::map<int, int> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    int pid = 0;
    const char* const end = name.data() + name.size();
    if (const auto read = std::from_chars(name.data(), end, pid); read.ptr != end) continue;
    if (const auto parent = status_of(pid, "PPid")) all[pid] = *parent;
  }
  if (error) throw std::runtime_error("cannot list /proc: " + error.message());
  return all;
}

bool descends(int pid, int ancestor, const std::map<int, int>& parents) {
  while (pid != ancestor) {
    const auto found = parents.find(pid);
    if (found == parents.end()) return false;
    pid = found->second;
  }
  return true;
}

}  // namespace

fs::path this_program() {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) throw std::runtime_error("cannot read /proc/self/exe: " + error.message());
  return path;
}

ProcessCount count_processes(int ancestor, const fs::path& program) {
  const std::map<int, int> all = parents();
  ProcessCount count;
  for (const auto& [pid, parent] : all) {
    if (!descends(pid, ancestor, all)) continue;
    std::error_code error;
    if (fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error) != program) continue;
    ++count.processes;
    count.threads += status_of(pid, "Threads").value_or(0);
  }
  return count;
}

}  // namespace paceline::apps
