// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/meeting.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/comm/secret.h"
#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"

namespace paceline::apps {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The flag wins over the variable. One host needs no file: nobody else has to know the secret.
store::Secret choose_secret(const RunOptions& options) {
  const std::string from_variable = variable("PACELINE_SECRET_FILE");
  const std::string& file = options.secret_file.empty() ? from_variable : options.secret_file;
  const std::string auth = variable("PACELINE_AUTH");
  if (!auth.empty() && auth != "none")
    throw UsageError(fmt::format("PACELINE_AUTH is '{}'; the only value it knows is 'none'", auth));
  if (!auth.empty() && !file.empty())
    throw UsageError(
        fmt::format("PACELINE_AUTH=none contradicts the secret file '{}': use one of them", file));
  if (!auth.empty()) return {};
  if (!file.empty()) return read_secret_file(file);
  if (options.nodes == 1) return make_secret();
  throw UsageError(
      "--nnodes needs --secret-file (or PACELINE_SECRET_FILE), else strangers could join; make one "
      "with (umask 077; head -c 32 /dev/urandom | base64 > secret) and copy it to all hosts; "
      "PACELINE_AUTH=none does without");
}

/// Debian gives a host's own name the address 127.0.1.1, where other hosts cannot come.
void refuse_hidden(const RunOptions& options, const net::Fd& listener) {
  const std::string bound = net::local_address(listener);
  const std::string& asked = options.master_addr;
  const bool loopback = bound.starts_with("127.") || bound.starts_with("[::1]");
  if (options.nodes == 1 || !loopback || asked == "localhost" || bound.starts_with(asked)) return;
  if (bound.starts_with('[' + asked)) return;
  throw UsageError(
      fmt::format("--master-addr {} is {} on this host, where other hosts cannot reach it; give "
                  "the address that they use, as `hostname -I` shows it",
                  asked, bound.substr(0, bound.rfind(':'))));
}

net::Fd listen(const RunOptions& options) {
  const std::string host = options.nodes == 1 ? kLoopback : options.master_addr;
  const auto port = static_cast<std::uint16_t>(options.master_port.value_or(0));
  try {
    net::Fd listener = net::listen_tcp(host, port);
    refuse_hidden(options, listener);
    return listener;
  } catch (const net::SystemError& error) {
    std::string_view flags = options.nodes == 1 ? "--master-port" : "--master-addr, --master-port";
    throw UsageError(fmt::format("{}: {}", flags, error.what()));
  }
}

store::Layout meet_hosts(const RunOptions& options,
                         const Meeting& meeting,
                         const std::function<void(const std::string&)>& tell,
                         const std::string& problem) {
  if (options.nodes == 1) return {.world = options.ranks, .first_rank = 0};
  const store::HostOptions hosts{.node = options.node_rank,
                                 .nodes = options.nodes,
                                 .ranks = options.ranks,
                                 .host = meeting.address,
                                 .port = meeting.port,
                                 .secret = meeting.secret,
                                 .problem = problem,
                                 .connect_timeout = options.connect_timeout,
                                 .tell = tell};
  return meeting.listener ? store::receive_hosts(meeting.listener, hosts)
                          : store::report_to_host_0(hosts);
}

}  // namespace

Meeting open_meeting(const RunOptions& options,
                     const std::function<void(const std::string&)>& tell,
                     const std::string& problem) {
  Meeting meeting;
  meeting.secret = choose_secret(options);
  meeting.address = options.nodes == 1 ? kLoopback : options.master_addr;
  meeting.port = static_cast<std::uint16_t>(options.master_port.value_or(0));
  if (options.node_rank == 0) {
    meeting.listener = listen(options);
    meeting.port = net::local_port(meeting.listener);
  }
  meeting.layout = meet_hosts(options, meeting, tell, problem);
  if (meeting.secret.key) meeting.secret_fd = hand_down(meeting.secret);
  return meeting;
}

void serve(Meeting& meeting, const RunOptions& options) {
  if (!meeting.listener) return;
  meeting.server = std::make_unique<store::Server>(
      std::move(meeting.listener),
      store::ServerOptions{.world = meeting.layout.world,
                           .secret = meeting.secret,
                           .connect_timeout = options.connect_timeout});
}

}  // namespace paceline::apps
