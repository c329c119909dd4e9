// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "apps/compare/messages.h"
#include "apps/compare/worker.h"
#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/system_error.h"

namespace paceline::apps {
namespace {

constexpr auto kStart = std::chrono::minutes(2);  // LibTorch, data, the meeting of ranks
constexpr auto kTurn = std::chrono::minutes(60);  // a few steps, whatever the model
constexpr auto kAnswer = std::chrono::minutes(1);
constexpr auto kPatience = std::chrono::seconds(2);  // then see whether the process is stopped
constexpr auto kFarewell = std::chrono::seconds(5);  // from a closed socket to the end of a process

bool begins_with(const std::string& text, std::string_view name) {
  return text.rfind(name, 0) == 0 && text.size() > name.size() && text[name.size()] == '=';
}

/// LibTorch's threads are a contestant's own matter, and so is where ranks meet.
std::vector<std::string> environment_for(const Contestant& contestant) {
  constexpr std::array<std::string_view, 14> kOurs{"OMP_NUM_THREADS",
                                                   "MKL_NUM_THREADS",
                                                   "RANK",
                                                   "WORLD_SIZE",
                                                   "LOCAL_RANK",
                                                   "LOCAL_WORLD_SIZE",
                                                   "GROUP_RANK",
                                                   "GROUP_WORLD_SIZE",
                                                   "MASTER_ADDR",
                                                   "MASTER_PORT",
                                                   "PACELINE_AUTH",
                                                   "PACELINE_SECRET_FD",
                                                   "PACELINE_SECRET_FILE",
                                                   "PACELINE_CONNECT_TIMEOUT"};
  std::vector<std::string> environment = net::environment_variables();
  std::erase_if(environment, [&](const std::string& variable) {
    return std::ranges::any_of(kOurs, [&](auto name) { return begins_with(variable, name); });
  });
  const int cores = net::usable_cores();
  switch (contestant.mechanism) {
    case Mechanism::kSingle: environment.emplace_back("OMP_NUM_THREADS=1"); break;
    case Mechanism::kSingleAllCores:
      environment.push_back(fmt::format("OMP_NUM_THREADS={}", cores));
      break;
    case Mechanism::kDp:
      environment.push_back(
          fmt::format("OMP_NUM_THREADS={}", std::max(1, cores / contestant.ranks)));
      break;
    case Mechanism::kDdp: break;  // the launcher shares the cores out
  }
  return environment;
}

net::Child start(const Contestant& contestant, const std::string& place, int number) {
  const auto program = this_program();
  std::vector<std::string> worker{kWorkerArgument, place, std::to_string(number)};
  const auto environment = environment_for(contestant);
  if (contestant.mechanism != Mechanism::kDdp) {
    return net::spawn(program, worker, environment, {.output = net::ChildOutput::kInherited});
  }
  std::vector<std::string> arguments{"run", "-n", std::to_string(contestant.ranks), "--", program};
  arguments.insert(arguments.end(), worker.begin(), worker.end());
  return net::spawn(program.parent_path() / "paceline", arguments, environment,
                    {.output = net::ChildOutput::kInherited});
}

int number_in(std::string_view text) {
  int value = -1;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

Team::Team(const TrainingSettings& settings, const MeetingPlace& place, int number)
    : contestant_(settings.contestant),
      ranks_(contestant_.mechanism == Mechanism::kDdp ? static_cast<std::size_t>(contestant_.ranks)
                                                      : 1),
      child_(start(contestant_, place.name, number)) {
  accept_all(place, number);
  say(word::kSettings, text_of(settings));
  for (std::size_t r = 0; r < ranks_.size(); ++r) (void)hear(r, word::kReady, kStart);
}

void Team::accept_all(const MeetingPlace& place, int number) {
  const Deadline deadline = Deadline::after(kStart);
  while (std::ranges::any_of(ranks_, [](const auto& rank) { return !rank; })) {
    std::array<net::PollItem, 2> items{
        {{.fd = &place.listener, .recv = true}, {.fd = &child_.ended(), .recv = true}}};
    if (net::poll(items, deadline) == 0) fail("it has not started within two minutes");
    if (items[0].can_recv) {
      adopt(place, number);
    } else {
      fail_by_end("it ended before it began to train");
    }
  }
}

/// Lets in what is a worker of this team.
void Team::adopt(const MeetingPlace& place, int number) {
  std::optional<Guest> guest = let_in(place);
  if (!guest) return;
  const std::string_view hello = guest->hello;
  const std::size_t space = hello.find(' ');
  if (space == std::string_view::npos) return;
  const int rank = number_in(hello.substr(space + 1));
  if (number_in(hello) != number || rank < 0 || std::cmp_greater_equal(rank, ranks_.size())) {
    return;
  }
  ranks_[static_cast<std::size_t>(rank)].emplace(std::move(guest->connection));
}

double Team::run(std::int64_t steps) {
  say(word::kRun, std::to_string(steps));
  double sum = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) sum += std::stod(hear(r, word::kDone, kTurn));
  return sum / static_cast<double>(ranks_.size());
}

void Team::start_recording() { say(word::kRecord, ""); }

ProcessCount Team::count() const { return count_processes(child_.pid(), this_program()); }

std::vector<ProcessRecord> Team::finish() {
  say(word::kFinish, "");
  std::vector<ProcessRecord> records;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    records.push_back(record_from(hear(r, word::kRecord, kTurn)));
  }
  const auto end = child_.wait(Deadline::after(kAnswer));
  if (!end) fail("it did not end after training");
  if (!end->ok()) fail_by_end("it failed at its end");
  return records;
}

void Team::say(const char* what, const std::string& body) {
  for (auto& rank : ranks_) {
    try {
      rank->send(what, body, Deadline::after(kAnswer));
    } catch (const net::SystemError&) {
      fail_by_end("a process of it is gone");
    }
  }
}

std::string Team::hear(std::size_t rank, const char* expected, std::chrono::minutes limit) {
  Connection::Text text;
  try {
    const Deadline deadline = Deadline::after(limit);
    while (!ranks_[rank]->wait(Deadline::after(kPatience))) {
      fail_if_stopped();
      if (deadline.passed()) break;
    }
    text = ranks_[rank]->receive(deadline);
  } catch (const net::TimedOut&) {
    fail(fmt::format("it has not answered for {} minutes", limit.count()));
  } catch (const net::SystemError&) {
    fail_by_end(fmt::format("the process of rank {} is gone", rank));
  }
  if (text.word == word::kError) fail(text.body);
  if (text.word != expected) {
    fail(fmt::format("it said '{}' where '{}' was due", text.word, expected));
  }
  return std::move(text.body);
}

void Team::fail(const std::string& why) const {
  throw std::runtime_error(fmt::format("{}: {}", title_of(contestant_), why));
}

void Team::fail_if_stopped() const {
  const auto signal = child_.stopped_by();
  if (!signal) return;
  fail(fmt::format("its process {} is stopped by signal {}: nothing can be measured", child_.pid(),
                   *signal));
}

void Team::fail_by_end(const std::string& what) {
  const auto end = child_.wait(Deadline::after(kFarewell));
  const std::string how = !end               ? ""
                          : end->signal != 0 ? fmt::format(" (signal {})", end->signal)
                                             : fmt::format(" (exit code {})", end->code);
  fail(fmt::format("{}{}; what it said stands above", what, how));
}

}  // namespace paceline::apps
