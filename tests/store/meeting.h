// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// For tests: a store on a free loopback port, ranks as threads that join it, and what ranks say.

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/net/socket.h"
#include "paceline/store/hmac.h"
#include "paceline/store/join.h"
#include "paceline/store/message.h"

namespace paceline::store::test {

inline Secret make_secret() {
  Secret secret;
  fill_random(secret.key.emplace());
  return secret;
}

inline Hello hello_of(int rank, std::chrono::milliseconds patience = std::chrono::seconds(60)) {
  return {.patience = patience,
          .connect_timeout = patience,
          .host = "node" + std::to_string(rank),
          .address = "10.0.0." + std::to_string(rank) + ":1",
          .algorithm = ""};
}

/// What join() gave or threw.
struct Outcome {
  std::optional<Membership> membership;
  std::optional<CommError> error;
  [[nodiscard]] std::string text() const { return error ? error->what() : "joined"; }
};

class Store {
 public:
  explicit Store(int world, std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : world_(world), secret_(make_secret()), listener_(net::listen_tcp("127.0.0.1", 0)) {
    port_ = net::local_port(listener_);
    server_.emplace(std::move(listener_),
                    ServerOptions{.world = world, .secret = secret_, .connect_timeout = timeout});
  }
  [[nodiscard]] JoinOptions options(int rank) const {
    return {.rank = rank,
            .world = world_,
            .host = "127.0.0.1",
            .port = port_,
            .secret = secret_,
            .algorithm = "",
            .connect_timeout = std::chrono::seconds(60)};
  }
  [[nodiscard]] Server& server() { return *server_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  void stop() { server_.reset(); }

 private:
  int world_;
  Secret secret_;
  net::Fd listener_;
  std::uint16_t port_ = 0;
  std::optional<Server> server_;
};

inline Outcome try_join(const JoinOptions& options) {
  Outcome outcome;
  try {
    outcome.membership = join(options);
  } catch (const CommError& error) {
    outcome.error = error;
  }
  return outcome;
}

/// Joins with all options at once, each on a thread of its own.
inline std::vector<Outcome> join_all(const std::vector<JoinOptions>& options) {
  std::vector<Outcome> outcomes(options.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < options.size(); ++i)
    threads.emplace_back([&outcomes, &options, i] { outcomes[i] = try_join(options[i]); });
  threads.clear();
  return outcomes;
}

inline std::vector<JoinOptions> everybody(const Store& store, int world) {
  std::vector<JoinOptions> options;
  for (int r = 0; r < world; ++r) options.push_back(store.options(r));
  return options;
}

}  // namespace paceline::store::test
