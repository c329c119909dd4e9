// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/dial.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "paceline/base/checked_cast.h"
#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"
#include "paceline/store/half_open.h"
#include "paceline/store/verdict.h"

namespace paceline::store {
namespace {

constexpr std::chrono::milliseconds kLostHostLimit{30'000};
constexpr std::chrono::milliseconds kRetryPause{20};

/// "node7:29500 (MASTER_ADDR, MASTER_PORT)".
std::string place(const JoinOptions& options) {
  const std::string name = name_of_store(options);
  return options.named_by.empty() ? name : fmt::format("{} ({})", name, options.named_by);
}

class Dialler {
 public:
  Dialler(const JoinOptions& options, Deadline deadline)
      : options_(options), deadline_(deadline), store_(place(options)) {}
  Channel run();

 private:
  [[noreturn]] void fail(CommErrc code, const std::string& text) const {
    throw join_error(options_, code, -1, text);
  }
  [[noreturn]] void fail_unreached(const std::string& why) const;
  [[noreturn]] void fail_refused(const Refusal& refusal) const;
  net::Fd dial();
  net::Fd dial_local();
  void pause() { net::poll({}, Deadline::earlier(deadline_, Deadline::after(kRetryPause))); }

  const JoinOptions& options_;
  const Deadline deadline_;
  const std::string store_;
};

void Dialler::fail_unreached(const std::string& why) const {
  const std::string limit =
      deadline_.passed() ? " within " + name_duration(options_.connect_timeout) : "";
  fail(CommErrc::kConnectFailed,
       fmt::format("the store at {} cannot be reached{}: {}", store_, limit, why));
}

void Dialler::fail_refused(const Refusal& refusal) const {
  const bool foreign = refusal.code == RefusalCode::kNotOurs;
  fail(foreign ? CommErrc::kConnectFailed : CommErrc::kRefused,
       fmt::format("no admission to the store at {}: {}{}", store_, to_text(refusal),
                   foreign ? "; is this the address at which the store listens?" : ""));
}

Channel Dialler::run() {
  const Terms terms{.side = Side::kInitiator,
                    .purpose = Purpose::kControl,
                    .rank = checked_cast<std::uint32_t>(options_.rank),
                    .peer = kStoreRank,
                    .world = checked_cast<std::uint32_t>(options_.world),
                    .secret = options_.secret};
  auto half = shake_hands([this] { return dial(); }, terms, deadline_);
  if (!half)
    fail(CommErrc::kConnectFailed,
         fmt::format("the store at {} takes connections but does not finish the handshake "
                     "within {}; is it stopped, or does something else listen there?",
                     store_, name_duration(options_.connect_timeout)));
  const Handshake& handshake = half->handshake();
  if (handshake.state() == Handshake::State::kRefused) fail_refused(handshake.refusal());
  return Channel(half->take_socket(), handshake.session_key(), Side::kInitiator);
}

net::Fd Dialler::dial() {
  try {
    if (is_local(options_)) return dial_local();
    net::Fd socket = net::connect_tcp_until(options_.host, options_.port, deadline_);
    net::limit_unacknowledged(socket, kLostHostLimit);
    return socket;
  } catch (const net::SystemError& error) {
    fail_unreached(error.what());
  }
}

net::Fd Dialler::dial_local() {
  for (;;) {
    try {
      net::Fd socket = net::connect_unix_abstract(options_.host.substr(1), deadline_);
      const auto owner = net::peer_credentials(socket).uid;
      if (owner == net::user_id()) return socket;
      fail(CommErrc::kRefused,
           fmt::format("the store at {} belongs to user {}, this process to user {}", store_, owner,
                       net::user_id()));
    } catch (const net::SystemError& error) {
      if (error.code() != ECONNREFUSED || deadline_.passed()) throw;
    }
    pause();
  }
}

}  // namespace

bool is_local(const JoinOptions& options) { return options.host.starts_with('@'); }

std::string name_of_store(const JoinOptions& options) {
  return is_local(options) ? options.host : fmt::format("{}:{}", options.host, options.port);
}

CommError join_error(const JoinOptions& options, CommErrc code, int peer, const std::string& text) {
  return CommError(code, options.rank, peer, fmt::format("rank {}: {}", options.rank, text));
}

Channel dial_store(const JoinOptions& options, Deadline deadline) {
  return Dialler(options, deadline).run();
}

}  // namespace paceline::store
