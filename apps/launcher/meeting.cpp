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

net::Fd listen(const RunOptions& options) {
  const std::string host = options.nodes == 1 ? kLoopback : options.master_addr;
  const auto port = static_cast<std::uint16_t>(options.master_port.value_or(0));
  try {
    return net::listen_tcp(host, port);
  } catch (const net::SystemError& error) {
    std::string_view flags = options.nodes == 1 ? "--master-port" : "--master-addr, --master-port";
    throw UsageError(fmt::format("{}: {}", flags, error.what()));
  }
}

}  // namespace

Meeting open_meeting(const RunOptions& options) {
  Meeting meeting;
  const store::Secret secret = choose_secret(options);
  meeting.address = options.nodes == 1 ? kLoopback : options.master_addr;
  meeting.port = static_cast<std::uint16_t>(options.master_port.value_or(0));
  if (secret.key) meeting.secret = hand_down(secret);
  if (options.node_rank == 0) {
    net::Fd listener = listen(options);
    meeting.port = net::local_port(listener);
    meeting.server = std::make_unique<store::Server>(
        std::move(listener), store::ServerOptions{.world = options.world_size(),
                                                  .secret = secret,
                                                  .connect_timeout = options.connect_timeout});
  }
  return meeting;
}

}  // namespace paceline::apps
