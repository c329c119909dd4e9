// SPDX-License-Identifier: Apache-2.0
// Joins the job that the environment describes.
#include "paceline/comm/init.h"

#include <memory>
#include <utility>

#include "paceline/base/deadline.h"
#include "paceline/base/error.h"
#include "paceline/comm/context.h"
#include "paceline/comm/environment.h"
#include "paceline/comm/secret.h"
#include "paceline/link/shm/meet.h"
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

// Shared memory if all ranks may share it, else sockets, unless this job insists.
void make_links(const Environment& environment,
                std::vector<net::Fd> sockets,
                std::chrono::milliseconds timeout,
                ContextOptions& context) {
  link::ShmMeeting meeting = link::meet_over_shm(
      sockets,
      {.rank = environment.rank, .wish = environment.link, .deadline = Deadline::after(timeout)});
  context.fabric = std::move(meeting.fabric);
  context.link_reason = std::move(meeting.reason);
  if (context.fabric) return;
  if (environment.link == link::LinkWish::kShm)
    throw UsageError("PACELINE_LINK is shm, but these ranks cannot share memory: " +
                     context.link_reason);
  context.fabric = link::make_tcp_fabric(environment.rank, std::move(sockets));
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
    make_links(environment, std::move(membership.sockets), timeout, context);
    context.control = std::move(membership.control);
  }
  return Communicator(std::make_shared<Context>(std::move(context)));
}

}  // namespace paceline
