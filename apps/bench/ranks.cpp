// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ranks.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

#include "apps/bench/exercise.h"
#include "apps/bench/futex_barrier.h"
#include "apps/bench/yardsticks.h"
#include "apps/compare/meeting_place.h"
#include "apps/compare/process_count.h"
#include "paceline/base/error.h"
#include "paceline/comm/init.h"
#include "paceline/net/child.h"
#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/system_error.h"

namespace paceline::apps {
namespace {

constexpr auto kRankAnswerTime = std::chrono::minutes(1);
constexpr auto kRowTime = std::chrono::hours(24);  // its end is seen at once
constexpr auto kEndTime = std::chrono::minutes(1);
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

net::Child start_ranks(const BenchOptions& options, const MeetingPlace& place) {
  const std::string program = this_program();
  std::vector<std::string> arguments{"run", "-n", std::to_string(options.ranks), "--", program};
  const auto ours = arguments_of(options);
  arguments.insert(arguments.end(), ours.begin(), ours.end());
  arguments.insert(arguments.end(), {"--rank-of", place.name});
  auto environment = net::environment_variables();
  std::erase_if(environment, [](const auto& one) { return one.starts_with("PACELINE_LINK="); });
  environment.push_back("PACELINE_LINK=" + std::string(name_of(options.link)));
  return net::spawn(program, arguments, environment, {.output = net::ChildOutput::kInherited});
}

/// Rank 0's connection; none if the ranks end without one.
std::optional<Connection> await_rank(const MeetingPlace& place, net::Child& child) {
  for (;;) {
    std::array<net::PollItem, 2> items{
        {{.fd = &place.listener, .recv = true}, {.fd = &child.ended(), .recv = true}}};
    (void)net::poll(items, Deadline::after(kRowTime));
    if (items[0].can_recv) {
      if (auto guest = let_in(place)) return std::move(guest->connection);
    } else if (items[1].can_recv) {
      return std::nullopt;
    }
  }
}

/// Until the connection ends.
void hear(Connection& connection, const BenchListener& listener) {
  try {
    for (;;) {
      const Connection::Text text = connection.receive(Deadline::after(kRowTime));
      if (text.word == kReady) {
        const std::size_t space = text.body.find(' ');
        listener.on_ready(text.body.substr(0, space), text.body.substr(space + 1));
      }
      if (text.word == kRow) listener.on_row(bench_row_from(text.body));
    }
  } catch (const net::SystemError&) {
    return;  // the rank has ended: its exit code says how
  }
}

int run_processes(const BenchOptions& options, const BenchListener& listener) {
  const MeetingPlace place = make_meeting_place("bench");
  net::Child child = start_ranks(options, place);
  if (auto connection = await_rank(place, child)) hear(*connection, listener);
  const auto end = child.wait(Deadline::after(kEndTime));
  if (!end) throw std::runtime_error("the ranks have not ended a minute after the bench");
  return end->shell_code();
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
