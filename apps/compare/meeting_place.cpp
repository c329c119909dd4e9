// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/meeting_place.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "paceline/net/host.h"
#include "paceline/net/job.h"
#include "paceline/net/socket.h"

namespace paceline::apps {
namespace {
constexpr auto kHelloTime = std::chrono::seconds(5);  // a process of ours says it at once
constexpr auto kAnswerTime = std::chrono::minutes(1);
}  // namespace

MeetingPlace make_meeting_place(std::string_view purpose) {
  const net::Job random;
  MeetingPlace place{.listener = {}, .name = fmt::format("paceline-{}-{}", purpose, random.id())};
  place.listener = net::listen_unix_abstract(place.name);
  return place;
}

Connection visit(const std::string& name, std::string_view hello) {
  Connection connection(net::connect_unix_abstract(name, Deadline::after(kAnswerTime)));
  connection.send(word::kHello, hello, Deadline::after(kAnswerTime));
  return connection;
}

std::optional<Guest> let_in(const MeetingPlace& place) {
  net::Fd socket = net::accept_now(place.listener);
  if (!socket || net::peer_credentials(socket).uid != net::user_id()) return std::nullopt;
  Guest guest{.connection = Connection(std::move(socket)), .hello = {}};
  try {
    Connection::Text text = guest.connection.receive(Deadline::after(kHelloTime));
    if (text.word != word::kHello) return std::nullopt;
    guest.hello = std::move(text.body);
  } catch (const std::exception&) {
    return std::nullopt;  // a stranger that says nothing, or something else
  }
  return guest;
}

}  // namespace paceline::apps
