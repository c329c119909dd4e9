// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Whole texts over a local socket, between the process that compares and those that train.

#include <string>
#include <string_view>
#include <utility>

#include "paceline/base/deadline.h"
#include "paceline/net/fd.h"

namespace paceline::apps {

/// One end. A text is a word that says what it is, and what it holds.
///
/// Threads  One at a time.
class Connection {
 public:
  explicit Connection(net::Fd socket) noexcept : socket_(std::move(socket)) {}

  struct Text {
    std::string word;
    std::string body;
  };

  /// Errors  net::SystemError if the other end is gone or does not read until the deadline.
  void send(std::string_view word, std::string_view body, Deadline deadline);

  /// Errors  net::TimedOut, net::EndOfStream, net::SystemError; std::runtime_error if a text is
  ///         longer than 1 GiB.
  [[nodiscard]] Text receive(Deadline deadline);

  /// Whether there is something to receive; waits for it until the deadline.
  [[nodiscard]] bool wait(Deadline deadline) const;

 private:
  [[nodiscard]] std::string receive_part(Deadline deadline);
  void send_part(std::string_view text, Deadline deadline);

  net::Fd socket_;
};

}  // namespace paceline::apps
