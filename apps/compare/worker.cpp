// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/worker.h"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>

#include "apps/compare/connection.h"
#include "apps/compare/meeting_place.h"
#include "apps/compare/messages.h"
#include "apps/compare/torch/trainer.h"
#include "paceline/base/error.h"
#include "paceline/comm/init.h"

namespace paceline::apps {
namespace {

// The other process answers at once, or waits for other workers' turns; its end is seen at once.
constexpr auto kAnswer = std::chrono::minutes(1);
constexpr auto kTurn = std::chrono::hours(24);

class Worker {
 public:
  Worker(Connection& connection, const TrainingSettings& settings) : connection_(connection) {
    if (settings.contestant.mechanism == Mechanism::kDdp) {
      comm_.emplace(init({.algorithm = settings.algorithm}));
      trainer_ = make_rank_trainer(settings, *comm_);
    } else {
      trainer_ = make_trainer(settings);
    }
  }

  void obey() {
    say(word::kReady, "");
    for (;;) {
      const Connection::Text order = connection_.receive(Deadline::after(kTurn));
      if (order.word == word::kFinish) return;
      if (order.word == word::kRecord) {
        trainer_->start_recording();
      } else {
        run(std::stoll(order.body));
      }
    }
  }

  void report() { say(word::kRecord, text_of(trainer_->take_record())); }

  /// Ends the other ranks' waiting too.
  void give_up(const std::string& why) {
    if (comm_) comm_->abort(why);
  }

 private:
  void run(std::int64_t steps) {
    double loss = 0;
    for (std::int64_t i = 0; i < steps; ++i) loss = trainer_->step();
    say(word::kDone, fmt::format("{}", loss));
  }

  void say(std::string_view what, const std::string& body) {
    connection_.send(what, body, Deadline::after(kAnswer));
  }

  Connection& connection_;
  std::optional<Communicator> comm_;
  std::unique_ptr<Trainer> trainer_;
};

void work(Connection& connection) {
  const TrainingSettings settings =
      settings_from(connection.receive(Deadline::after(kAnswer)).body);
  Worker worker(connection, settings);
  try {
    worker.obey();
    worker.report();
  } catch (const std::exception& error) {
    worker.give_up(error.what());
    throw;
  }
}

}  // namespace

int run_worker(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2) {
    throw UsageError(fmt::format("{} is for paceline itself: it takes a socket's name and a team",
                                 kWorkerArgument));
  }
  const char* const rank = std::getenv("RANK");
  Connection connection =
      visit(arguments[0], fmt::format("{} {}", arguments[1], rank != nullptr ? rank : "0"));
  try {
    work(connection);
    return 0;
  } catch (const std::exception& error) {
    connection.send(word::kError, error.what(), Deadline::after(kAnswer));
    return 1;
  }
}

}  // namespace paceline::apps
