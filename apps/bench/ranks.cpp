// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ranks.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <vector>

#include "apps/bench/exercise.h"
#include "apps/bench/futex_barrier.h"
#include "apps/bench/rank_processes.h"
#include "apps/bench/yardsticks.h"
#include "apps/compare/meeting_place.h"
#include "apps/compare/process_count.h"
#include "paceline/base/error.h"
#include "paceline/comm/init.h"
#include "paceline/net/host.h"

namespace paceline::apps {
namespace {

constexpr auto kRankAnswerTime = std::chrono::minutes(1);
constexpr const char* kReady = "ready";  // the link, a space, why it is not shm
constexpr const char* kRow = "row";

Exercise make_exercise(Communicator& comm, const BenchOptions& options, std::uint64_t bytes) {
  return options.what ? make_collective(comm, options, bytes) : make_futex_barrier(comm, options);
}

/// Figures of another link than the one that was asked for would mislead.
void require_link(Communicator& comm, BenchLink asked) {
  const std::string link = comm.link();
  if (asked == BenchLink::kAuto || name_of(asked) == link) return;
  throw UsageError(
      fmt::format("--link {}: the ranks are joined by {} instead", name_of(asked), link));
}

/// One rank's part; the listener hears of it on rank 0.
void take_part(Communicator& comm, const BenchOptions& options, const BenchListener& listener) {
  require_link(comm, options.link);
  comm.barrier();
  if (comm.rank() == 0) listener.on_ready(comm.link(), comm.link_reason());
  const bool waits = options.what == Collective::kBarrier && options.link != BenchLink::kMemory;
  for (const std::uint64_t bytes : options.sizes) {
    const Exercise exercise = make_exercise(comm, options, bytes);
    const Yardsticks yardsticks = make_yardsticks(comm, options, exercise, bytes);
    BenchRow row = measure(comm, exercise, yardsticks, options.seconds);
    row.bytes = bytes;
    if (waits) row.idle_share = idle_share(comm);
    if (comm.rank() == 0) listener.on_row(row);
  }
  comm.barrier();
}

int run_processes(const BenchOptions& options, const BenchListener& listener) {
  RankProcesses ranks{.count = options.ranks,
                      .program = this_program(),
                      .arguments = arguments_of(options),
                      .environment = net::environment_variables()};
  ranks.arguments.emplace_back("--rank-of");
  std::erase_if(ranks.environment,
                [](const auto& one) { return one.starts_with("PACELINE_LINK="); });
  ranks.environment.push_back("PACELINE_LINK=" + std::string(name_of(options.link)));
  return run_ranks(ranks, [&](const Connection::Text& text) {
    if (text.word == kReady) {
      const std::size_t space = text.body.find(' ');
      listener.on_ready(text.body.substr(0, space), text.body.substr(space + 1));
    }
    if (text.word == kRow) listener.on_row(bench_row_from(text.body));
  });
}

}  // namespace

int run_bench(const BenchOptions& options, const BenchListener& listener) {
  if (options.link != BenchLink::kMemory) return run_processes(options, listener);
  spawn_ranks(options.ranks, [&](Communicator& comm) { take_part(comm, options, listener); });
  return 0;
}

int run_bench_rank(const BenchOptions& options, const std::string& place) {
  Communicator comm = init();
  if (comm.rank() != 0) {
    take_part(comm, options, {});
    return 0;
  }
  Connection connection = visit(place, "");
  take_part(comm, options,
            {.on_ready =
                 [&](const std::string& link, const std::string& why_not_shared) {
                   connection.send(kReady, link + " " + why_not_shared,
                                   Deadline::after(kRankAnswerTime));
                 },
             .on_row =
                 [&](const BenchRow& row) {
                   connection.send(kRow, text_of(row), Deadline::after(kRankAnswerTime));
                 }});
  return 0;
}

}  // namespace paceline::apps
