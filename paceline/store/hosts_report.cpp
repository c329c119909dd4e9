// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "paceline/base/checked_cast.h"
#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"
#include "paceline/store/channel.h"
#include "paceline/store/half_open.h"
#include "paceline/store/hosts.h"
#include "paceline/store/verdict.h"

namespace paceline::store {
namespace {

class Reporter {
 public:
  explicit Reporter(const HostOptions& options)
      : options_(options),
        deadline_(Deadline::after(options.connect_timeout)),
        where_(fmt::format(
            "host 0 at {}:{} (--master-addr, --master-port)", options.host, options.port)) {}
  Layout run();

 private:
  Channel connect();
  net::Fd dial();
  [[nodiscard]] HostVerdict await_verdict(Channel& channel);
  [[noreturn]] void fail_refused(const Refusal& refusal) const;
  [[noreturn]] void fail(CommErrc code, const std::string& text) const {
    throw CommError(code, -1, -1, text);
  }

  const HostOptions& options_;
  const Deadline deadline_;
  const std::string where_;
  std::string told_;
};

Layout Reporter::run() {
  Channel channel = connect();
  channel.out.push(HostReport{.ranks = checked_cast<std::uint32_t>(options_.ranks),
                              .host = net::host_name(),
                              .problem = options_.problem});
  const HostVerdict verdict = await_verdict(channel);
  if (!verdict.problem.empty()) fail(CommErrc::kRefused, verdict.problem);
  return {.world = checked_cast<int>(verdict.world),
          .first_rank = checked_cast<int>(verdict.first_rank)};
}

Channel Reporter::connect() {
  const Terms terms{.side = Side::kInitiator,
                    .purpose = Purpose::kHosts,
                    .rank = checked_cast<std::uint32_t>(options_.node),
                    .peer = kStoreRank,
                    .world = checked_cast<std::uint32_t>(options_.nodes),
                    .secret = options_.secret};
  auto half = shake_hands([this] { return dial(); }, terms, deadline_);
  if (!half)
    fail(CommErrc::kConnectFailed,
         fmt::format("{} takes connections but does not finish the handshake within {}; does "
                     "something else listen there?",
                     where_, name_duration(options_.connect_timeout)));
  const Handshake& handshake = half->handshake();
  if (handshake.state() == Handshake::State::kRefused) fail_refused(handshake.refusal());
  return Channel(half->take_socket(), handshake.session_key(), Side::kInitiator);
}

net::Fd Reporter::dial() {
  for (;;) {
    try {
      return net::connect_tcp_until(options_.host, options_.port,
                                    Deadline::earlier(deadline_, Deadline::after(kPatience)));
    } catch (const net::TimedOut& error) {
      if (deadline_.passed())
        fail(CommErrc::kConnectFailed,
             fmt::format("{} cannot be reached within {}: {}", where_,
                         name_duration(options_.connect_timeout), error.what()));
      if (std::exchange(told_, error.what()) != told_)
        options_.tell(fmt::format("still waiting for {}: {}", where_, told_));
    } catch (const net::SystemError& error) {
      fail(CommErrc::kConnectFailed, fmt::format("{} cannot be reached: {}", where_, error.what()));
    }
  }
}

void Reporter::fail_refused(const Refusal& refusal) const {
  std::string why = to_text(refusal);
  if (refusal.code == RefusalCode::kPurpose)
    why = fmt::format("its job has started already; is another host started with --node-rank {}?",
                      options_.node);
  if (refusal.code == RefusalCode::kWorld)
    why = fmt::format("--nnodes differs: {} here, {} there", refusal.ours, refusal.theirs);
  const bool foreign = refusal.code == RefusalCode::kNotOurs;
  fail(foreign ? CommErrc::kConnectFailed : CommErrc::kRefused,
       fmt::format("{} does not take this host: {}", where_, why));
}

/// Host 0 knows who is missing, so its word is awaited a little beyond the deadline.
HostVerdict Reporter::await_verdict(Channel& channel) {
  const Deadline limit = Deadline::after(deadline_.left() + kVerdictGrace);
  Deadline tell_at = Deadline::after(kPatience);
  for (;;) {
    bool alive = channel.out.flush(channel.socket);
    alive = channel.in.pull(channel.socket) && alive;
    try {
      while (const auto message = channel.in.next())
        if (const auto* verdict = std::get_if<HostVerdict>(&*message)) return *verdict;
    } catch (const BadMessage&) {
      alive = false;
    }
    if (!alive)
      fail(CommErrc::kConnectFailed,
           fmt::format("{} has closed the connection: has its launcher ended?", where_));
    if (limit.passed())
      fail(CommErrc::kConnectFailed,
           fmt::format("{} has not said within {} that all hosts have come", where_,
                       name_duration(options_.connect_timeout)));
    if (tell_at.passed()) {
      tell_at = Deadline::never();
      options_.tell(fmt::format("{} is there, and waits for other hosts", where_));
    }
    net::PollItem item{.fd = &channel.socket, .send = channel.out.unsent() != 0, .recv = true};
    net::poll({&item, 1}, Deadline::earlier(limit, tell_at));
  }
}

}  // namespace

Layout report_to_host_0(const HostOptions& options) { return Reporter(options).run(); }

}  // namespace paceline::store
