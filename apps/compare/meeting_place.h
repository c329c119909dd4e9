// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where processes that this one has started find it: a local socket.

#include <optional>
#include <string>
#include <string_view>

#include "apps/compare/connection.h"
#include "paceline/net/fd.h"

namespace paceline::apps {

namespace word {
inline constexpr const char* kHello = "hello";  ///< the first text of a connection
}

struct MeetingPlace {
  net::Fd listener;
  std::string name;
};

/// A new place with a name that nobody guesses; `purpose` is a part of it.
///
/// Errors  net::SystemError.
[[nodiscard]] MeetingPlace make_meeting_place(std::string_view purpose);

/// Goes there and says hello.
///
/// Errors  net::SystemError, net::TimedOut.
[[nodiscard]] Connection visit(const std::string& name, std::string_view hello);

struct Guest {
  Connection connection;
  std::string hello;
};

/// Takes the connection that waits, if it is of this user and says hello in time.
[[nodiscard]] std::optional<Guest> let_in(const MeetingPlace& place);

}  // namespace paceline::apps
