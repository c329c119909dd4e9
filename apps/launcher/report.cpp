// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "paceline/net/signals.h"

namespace paceline::apps {
namespace {

constexpr std::size_t kMostNamed = 8;

/// "then rank 0 exited with code 1, rank 2 was killed by SIGTERM (asked to end)".
std::string others(const Outcome& outcome) {
  std::string text;
  std::size_t named = 0;
  std::size_t failed = 0;
  for (std::size_t i = 0; i < outcome.ends.size(); ++i) {
    if (i == outcome.first_failure || outcome.ends[i].ok()) continue;
    if (++failed > kMostNamed) continue;
    ++named;
    text += fmt::format("{}rank {} {}", text.empty() ? "" : ", ",
                        outcome.first_rank + static_cast<int>(i), describe(outcome.ends[i]));
  }
  if (failed > named) text += fmt::format(" and {} more", failed - named);
  return text;
}

void add_last_lines(const Outcome& outcome, int rank, std::vector<std::string>& lines) {
  if (outcome.last_lines.empty()) return;
  lines.push_back(fmt::format("the last lines of rank {}:", rank));
  for (const std::string& line : outcome.last_lines) lines.push_back("  | " + line);
}

void add_losses(const Outcome& outcome, std::vector<std::string>& lines) {
  const std::size_t named = std::min(outcome.losses.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i)
    lines.push_back(fmt::format("output of the ranks was lost: {}", outcome.losses[i]));
  if (outcome.losses.size() > named)
    lines.push_back(fmt::format("and to {} more files", outcome.losses.size() - named));
}

}  // namespace

std::string describe(const net::ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exited with code {}", status.code);
  const std::string_view meaning = net::signal_meaning(status.signal);
  const std::string name = net::signal_name(status.signal);
  return meaning.empty() ? fmt::format("was killed by {}", name)
                         : fmt::format("was killed by {} ({})", name, meaning);
}

int exit_code(const Outcome& outcome) {
  const bool all_ok = std::ranges::all_of(outcome.ends, &net::ExitStatus::ok);
  if (all_ok) return outcome.losses.empty() ? 0 : 1;
  if (outcome.first_failure) return outcome.ends[*outcome.first_failure].shell_code();
  return 128 + outcome.interrupted_by.value_or(0);
}

std::vector<std::string> report(const Outcome& outcome) {
  std::vector<std::string> lines;
  add_losses(outcome, lines);
  if (outcome.first_failure) {
    const int rank = outcome.first_rank + static_cast<int>(*outcome.first_failure);
    add_last_lines(outcome, rank, lines);
    const std::string rest = others(outcome);
    if (!rest.empty()) lines.push_back("after it " + rest);
    lines.push_back(fmt::format("rank {} of {} failed first: it {}", rank, outcome.world_size,
                                describe(outcome.ends[*outcome.first_failure])));
  } else if (outcome.interrupted_by) {
    lines.push_back(fmt::format("stopped by {}; all ranks of this host have ended",
                                net::signal_name(*outcome.interrupted_by)));
  }
  return lines;
}

}  // namespace paceline::apps
