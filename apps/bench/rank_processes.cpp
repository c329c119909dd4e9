// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rank_processes.h"

#include <array>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

#include "apps/compare/meeting_place.h"
#include "apps/compare/process_count.h"
#include "paceline/net/child.h"
#include "paceline/net/poll.h"
#include "paceline/net/system_error.h"

namespace paceline::apps {
namespace {

constexpr auto kTextTime = std::chrono::hours(24);  // its end is seen at once
constexpr auto kEndTime = std::chrono::minutes(1);

net::Child start_ranks(const RankProcesses& ranks, const MeetingPlace& place) {
  std::vector<std::string> arguments{"run", "-n", std::to_string(ranks.count), "--", ranks.program};
  arguments.insert(arguments.end(), ranks.arguments.begin(), ranks.arguments.end());
  arguments.push_back(place.name);
  return net::spawn(this_program(), arguments, ranks.environment,
                    {.output = net::ChildOutput::kInherited});
}

/// Rank 0's connection; none if the ranks end without one.
std::optional<Connection> await_rank(const MeetingPlace& place, net::Child& child) {
  for (;;) {
    std::array<net::PollItem, 2> items{
        {{.fd = &place.listener, .recv = true}, {.fd = &child.ended(), .recv = true}}};
    (void)net::poll(items, Deadline::after(kTextTime));
    if (items[0].can_recv) {
      if (auto guest = let_in(place)) return std::move(guest->connection);
    } else if (items[1].can_recv) {
      return std::nullopt;
    }
  }
}

/// Until the connection ends.
void listen_to(Connection& connection, const std::function<void(const Connection::Text&)>& hear) {
  for (;;) {
    std::optional<Connection::Text> text;
    try {
      text = connection.receive(Deadline::after(kTextTime));
    } catch (const net::SystemError&) {
      return;  // the rank has ended: its exit code says how
    }
    hear(*text);
  }
}

}  // namespace

int run_ranks(const RankProcesses& ranks,
              const std::function<void(const Connection::Text&)>& hear) {
  const MeetingPlace place = make_meeting_place("bench");
  net::Child child = start_ranks(ranks, place);
  if (auto connection = await_rank(place, child)) listen_to(*connection, hear);
  const auto end = child.wait(Deadline::after(kEndTime));
  if (!end) throw std::runtime_error("the ranks have not ended a minute after the bench");
  return end->shell_code();
}

}  // namespace paceline::apps
