// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "paceline/comm/environment.h"
#include "paceline/net/host.h"

namespace paceline::apps {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Variables parse(const std::vector<std::string>& entries) {
  Variables result;
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) result[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return result;
}

void set_ranks(Variables& into,
               const RunOptions& options,
               const store::Layout& layout,
               int local_rank) {
  const int rank = layout.first_rank + local_rank;
  into["RANK"] = std::to_string(rank);
  into["WORLD_SIZE"] = std::to_string(layout.world);
  into["LOCAL_RANK"] = std::to_string(local_rank);
  into["LOCAL_WORLD_SIZE"] = std::to_string(options.ranks);
  into["GROUP_RANK"] = std::to_string(options.node_rank);
  into["GROUP_WORLD_SIZE"] = std::to_string(options.nodes);
  into["PACELINE_LAUNCHER"] = launcher_mark(rank, layout.world);
}

/// A secret goes down as an open descriptor, never in the environment, which others may read.
void set_meeting(Variables& into, const RunOptions& options, const Meeting& meeting) {
  into["MASTER_ADDR"] = meeting.address;
  into["MASTER_PORT"] = std::to_string(meeting.port);
  into["PACELINE_CONNECT_TIMEOUT"] =
      fmt::format("{}", static_cast<double>(options.connect_timeout.count()) / 1000);
  for (const char* name : {"PACELINE_SECRET_FILE", "PACELINE_SECRET_FD", "PACELINE_AUTH"})
    into.erase(name);
  if (meeting.secret_fd) {
    into["PACELINE_SECRET_FD"] = std::to_string(meeting.secret_fd.raw());
  } else {
    into["PACELINE_AUTH"] = "none";
  }
}

/// Ranks write to pipes; this tells them that a person watches at the other end.
void set_terminal(Variables& into, std::size_t columns, std::size_t prefix) {
  into.erase("PACELINE_TERMINAL");
  if (columns == 0) return;
  into["PACELINE_TERMINAL"] = "1";
  into["COLUMNS"] = std::to_string(std::max<std::size_t>(columns, prefix + 20) - prefix);
}

std::vector<std::string> to_entries(const Variables& variables) {
  std::vector<std::string> result;
  result.reserve(variables.size());
  for (const auto& [name, value] : variables) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

}  // namespace

std::vector<std::string> with_job(const std::vector<std::string>& base, std::string_view id) {
  Variables variables = parse(base);
  std::string& jobs = variables["PACELINE_JOB"];
  jobs += jobs.empty() ? std::string(id) : fmt::format(":{}", id);
  return to_entries(variables);
}

std::vector<std::string> rank_environment(const std::vector<std::string>& base,
                                          const RunOptions& options,
                                          const Meeting& meeting,
                                          int local_rank,
                                          std::size_t terminal_columns) {
  Variables variables = parse(base);
  set_ranks(variables, options, meeting.layout, local_rank);
  set_meeting(variables, options, meeting);
  set_terminal(variables, terminal_columns, variables["RANK"].size() + 3);
  if (variables["OMP_NUM_THREADS"].empty())
    variables["OMP_NUM_THREADS"] = std::to_string(std::max(1, net::usable_cores() / options.ranks));
  return to_entries(variables);
}

}  // namespace paceline::apps
