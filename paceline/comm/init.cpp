// SPDX-License-Identifier: Apache-2.0
// Joins the job that the environment describes.
#include "paceline/comm/init.h"

#include <memory>
#include <utility>

#include "paceline/comm/context.h"
#include "paceline/comm/environment.h"
#include "paceline/comm/secret.h"
#include "paceline/link/tcp/tcp_fabric.h"
#include "paceline/net/socket.h"
#include "paceline/store/join.h"

namespace paceline {
namespace {

constexpr std::chrono::milliseconds kConnectTimeout = std::chrono::seconds(60);

// Rank 0 of a foreign launcher serves the meeting place itself.
std::unique_ptr<store::Server> serve(const Environment& environment,
                                     const store::Secret& secret,
                                     std::chrono::milliseconds connect_timeout) {
  if (!environment.serves_store) return nullptr;
  return std::make_unique<store::Server>(
      net::listen_unix_abstract(environment.master_addr.substr(1)),
      store::ServerOptions{
          .world = environment.world_size, .secret = secret, .connect_timeout = connect_timeout});
}

}  // namespace

Communicator init(const InitOptions& options) {
  const Environment environment = read_environment();
  const store::Secret secret = read_secret(environment.secret);
  const auto timeout =
      options.connect_timeout.value_or(environment.connect_timeout.value_or(kConnectTimeout));
  ContextOptions context{
      .rank = environment.rank, .world = environment.world_size, .algorithm = options.algorithm};
  context.server = serve(environment, secret, timeout);
  if (environment.launcher == Launcher::kTorchrun) context.store_rank = 0;
  store::Membership membership = store::join(
      {.rank = environment.rank,
       .world = environment.world_size,
       .host = environment.master_addr,
       .port = environment.master_port,
       .named_by = environment.master_variables,
       .secret = secret,
       .algorithm = options.algorithm ? std::string(name_of(*options.algorithm)) : std::string(),
       .connect_timeout = timeout});
  context.generation = membership.generation;
  if (environment.world_size > 1) {
    context.fabric = link::make_tcp_fabric(environment.rank, std::move(membership.sockets));
    context.control = std::move(membership.control);
  }
  return Communicator(std::make_shared<Context>(std::move(context)));
}

}  // namespace paceline
