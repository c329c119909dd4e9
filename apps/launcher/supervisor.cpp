// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "apps/launcher/environment.h"
#include "apps/launcher/meeting.h"
#include "apps/launcher/rank_output.h"
#include "apps/launcher/report.h"
#include "apps/launcher/screen.h"
#include "paceline/base/deadline.h"
#include "paceline/base/error.h"
#include "paceline/net/child.h"
#include "paceline/net/guardian.h"
#include "paceline/net/host.h"
#include "paceline/net/job.h"
#include "paceline/net/output.h"
#include "paceline/net/poll.h"
#include "paceline/net/signals.h"
#include "paceline/net/system_error.h"

namespace paceline::apps {
namespace {

constexpr std::array kStopSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kPassedSignals{SIGUSR1, SIGUSR2};
constexpr std::chrono::milliseconds kFarewellTime =
    std::chrono::seconds(1);                                               // to tell of the cause
constexpr std::chrono::milliseconds kDrainTime = std::chrono::seconds(1);  // to empty the pipes

struct Rank {
  net::Child child;
  std::unique_ptr<RankOutput> output;  // Lines holds a pointer into it
  std::optional<net::ExitStatus> end = {};
};

/// How far the end of the job has come. Each stage has a deadline, then the next one starts.
enum class Stage { kRunning, kFarewell, kGrace, kKilled };

class Supervisor {
 public:
  Supervisor(const RunOptions& options,
             const Meeting& meeting,
             net::Job& job,
             net::Guardian& guardian);
  int run(net::SignalFd& signals);

 private:
  void start(int local_rank);
  [[nodiscard]] bool all_ended() const;
  void sleep(net::SignalFd& signals);
  void take_signal(int signal);
  void stop(int cause, int signal, std::string_view why);
  void collect_ends();
  void enter(Stage stage, std::chrono::milliseconds limit);
  void advance_stage();
  void pass_notices_on();
  void name_the_stopped();
  void signal_groups(int signal);
  void ask_to_end(int signal);
  void drain();
  [[nodiscard]] Outcome outcome() const;

  const RunOptions& options_;
  const Meeting& meeting_;
  net::Job& job_;
  net::Guardian& guardian_;
  Screen screen_;
  const std::vector<std::string> base_environment_;
  std::vector<Rank> ranks_;
  Stage stage_ = Stage::kRunning;
  Deadline stage_ends_ = Deadline::never();
  std::optional<std::size_t> first_failure_;
  std::optional<int> interrupted_by_;
};

Supervisor::Supervisor(const RunOptions& options,
                       const Meeting& meeting,
                       net::Job& job,
                       net::Guardian& guardian)
    : options_(options),
      meeting_(meeting),
      job_(job),
      guardian_(guardian),
      base_environment_(with_job(net::environment_variables(), job.id())) {
  ranks_.reserve(static_cast<std::size_t>(options.ranks));
  for (int local_rank = 0; local_rank < options.ranks; ++local_rank) start(local_rank);
}

void Supervisor::start(int local_rank) {
  auto output = std::make_unique<RankOutput>(meeting_.layout.first_rank + local_rank,
                                             options_.log_dir, screen_);
  net::SpawnOptions spawn_options;
  if (meeting_.secret_fd) spawn_options.inherit = {&meeting_.secret_fd};
  const std::vector<std::string>& command = options_.command;
  net::Child child = net::spawn(
      command.front(), {command.begin() + 1, command.end()},
      rank_environment(base_environment_, options_, meeting_, local_rank, screen_.columns()),
      spawn_options);
  guardian_.watch(child.pid());
  output->attach(child);
  ranks_.push_back({std::move(child), std::move(output)});
}

bool Supervisor::all_ended() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.end.has_value(); });
}

/// Waits for output, a rank's end, a signal or the end of the stage, and passes output on.
void Supervisor::sleep(net::SignalFd& signals) {
  std::vector<net::PollItem> items{{.fd = &signals.fd(), .recv = true}};
  for (const Rank& rank : ranks_) {
    if (!rank.end) items.push_back({.fd = &rank.child.ended(), .recv = true});
    for (std::size_t i = 0; i < RankOutput::kPipes; ++i)
      items.push_back({.fd = &rank.output->pipe(i), .recv = true});
  }
  if (meeting_.server) items.push_back({.fd = &meeting_.server->notices(), .recv = true});
  (void)net::poll(items, stage_ends_);
  while (const auto signal = signals.next()) take_signal(*signal);
  for (Rank& rank : ranks_) rank.output->pump();
  if (screen_.closed() && stage_ == Stage::kRunning)
    stop(SIGPIPE, SIGTERM, "nobody reads our output any more: SIGTERM goes to all ranks");
}

void Supervisor::signal_groups(int signal) {
  for (Rank& rank : ranks_) rank.child.signal_group(signal);
}

/// A stopped process must run on to hear it.
void Supervisor::ask_to_end(int signal) {
  signal_groups(signal);
  signal_groups(SIGCONT);
}

void Supervisor::take_signal(int signal) {
  if (std::ranges::find(kPassedSignals, signal) != kPassedSignals.end()) {
    for (Rank& rank : ranks_)
      if (!rank.end) rank.child.signal(signal);
    return;
  }
  if (interrupted_by_) {
    screen_.note(
        fmt::format("{} while the ranks are ending: killing them", net::signal_name(signal)));
    enter(Stage::kKilled, options_.grace);
    return;
  }
  stop(signal, signal, fmt::format("{} is passed on to all ranks", net::signal_name(signal)));
}

/// Asks all ranks to end, by `signal`; `cause` is what the report names.
void Supervisor::stop(int cause, int signal, std::string_view why) {
  interrupted_by_ = cause;
  screen_.note(fmt::format("{}; they have {} s to end", why,
                           static_cast<double>(options_.grace.count()) / 1000));
  ask_to_end(signal);
  if (stage_ < Stage::kGrace) enter(Stage::kGrace, options_.grace);
}

/// Of several that end at once, one that was killed is the likelier cause.
void Supervisor::collect_ends() {
  std::optional<std::size_t> failed;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.end) continue;
    rank.end = rank.child.try_wait();
    if (!rank.end) continue;
    if (meeting_.server)
      meeting_.server->note_exit(meeting_.layout.first_rank + static_cast<int>(i),
                                 describe(*rank.end));
    if (rank.end->ok()) continue;
    if (!failed || (rank.end->signal != 0 && ranks_[*failed].end->signal == 0)) failed = i;
  }
  if (!failed || first_failure_ || interrupted_by_) return;
  first_failure_ = failed;
  name_the_stopped();
  if (stage_ == Stage::kRunning) enter(Stage::kFarewell, kFarewellTime);
}

/// Others have failed because of it: they waited in vain.
void Supervisor::name_the_stopped() {
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (const auto signal = ranks_[i].child.stopped_by())
      screen_.note(fmt::format("rank {} is stopped by {}",
                               meeting_.layout.first_rank + static_cast<int>(i),
                               net::signal_name(*signal)));
}

void Supervisor::enter(Stage stage, std::chrono::milliseconds limit) {
  stage_ = stage;
  stage_ends_ = Deadline::after(limit);
  if (stage == Stage::kKilled) signal_groups(SIGKILL);
}

void Supervisor::advance_stage() {
  if (!stage_ends_.passed()) return;
  if (stage_ == Stage::kFarewell) {
    ask_to_end(SIGTERM);
    enter(Stage::kGrace, options_.grace);
  } else {
    if (stage_ == Stage::kGrace)
      screen_.note(fmt::format("not all ranks have ended within {} s: killing them",
                               static_cast<double>(options_.grace.count()) / 1000));
    enter(Stage::kKilled, options_.grace);
  }
}

/// What ranks have left running ends now; it also holds their pipes open.
void Supervisor::drain() {
  signal_groups(SIGKILL);
  job_.kill();
  const Deadline deadline = Deadline::after(kDrainTime);
  const auto closed = [](const Rank& rank) { return rank.output->closed(); };
  while (!std::ranges::all_of(ranks_, closed) && !deadline.passed()) {
    std::vector<net::PollItem> items;
    for (const Rank& rank : ranks_)
      for (std::size_t i = 0; i < RankOutput::kPipes; ++i)
        items.push_back({.fd = &rank.output->pipe(i), .recv = true});
    (void)net::poll(items, deadline);
    for (Rank& rank : ranks_) rank.output->pump();
  }
  for (Rank& rank : ranks_) rank.output->finish();
}

Outcome Supervisor::outcome() const {
  Outcome result{.first_rank = meeting_.layout.first_rank, .world_size = meeting_.layout.world};
  for (const Rank& rank : ranks_) result.ends.push_back(*rank.end);
  result.first_failure = first_failure_;
  result.interrupted_by = interrupted_by_;
  if (first_failure_) result.last_lines = ranks_[*first_failure_].output->last_lines();
  result.losses = screen_.losses();
  for (const Rank& rank : ranks_)
    std::ranges::copy(rank.output->losses(), std::back_inserter(result.losses));
  return result;
}

void Supervisor::pass_notices_on() {
  if (!meeting_.server) return;
  for (const std::string& notice : meeting_.server->take_notices()) screen_.note(notice);
}

int Supervisor::run(net::SignalFd& signals) {
  while (!all_ended()) {
    sleep(signals);
    pass_notices_on();
    collect_ends();
    if (!all_ended()) advance_stage();
  }
  drain();
  const Outcome end = outcome();
  for (const std::string& line : report(end)) screen_.note(line);
  return exit_code(end);
}

void make_log_dir(const std::optional<std::string>& folder) {
  if (!folder) return;
  std::error_code error;
  std::filesystem::create_directories(*folder, error);
  if (error) throw UsageError(fmt::format("--log-dir '{}': {}", *folder, error.message()));
}

/// What is ignored from the start, as under nohup, stays ignored, here and in the ranks.
std::vector<int> watched_signals() {
  std::vector<int> result;
  for (const int signal : kStopSignals)
    if (!net::is_ignored(signal)) result.push_back(signal);
  result.insert(result.end(), kPassedSignals.begin(), kPassedSignals.end());
  return result;
}

void print_note(const std::string& text) { fmt::print(stderr, "paceline: {}\n", text); }

/// As a shell does: 127 if there is no such program, 126 if it cannot run.
int code_of_failed_start(int error) {
  if (error == ENOENT) return 127;
  return error == EACCES || error == ENOEXEC || error == EISDIR ? 126 : 1;
}

/// Why the program cannot start on this host, before any host starts its ranks.
std::optional<net::SystemError> find_problem(const RunOptions& options) {
  try {
    (void)net::find_program(options.command.front(), net::environment_variables());
    return std::nullopt;
  } catch (const net::SystemError& error) {
    return error;
  }
}

/// Tells it here at once, and all other hosts when they have come.
int fail_to_start(const RunOptions& options, const net::SystemError& problem) {
  print_note(problem.what());
  try {
    if (options.nodes > 1) (void)open_meeting(options, print_note, problem.what());
  } catch (const CommError& error) {
    const bool told = std::string_view(error.what()).find(problem.what()) != std::string_view::npos;
    if (!told) print_note(error.what());  // a host never came, say
  }
  return code_of_failed_start(problem.code());
}

}  // namespace

int launch(const RunOptions& options) {
  check(options);
  make_log_dir(options.log_dir);
  net::turn_write_signals_into_errors();
  if (const auto problem = find_problem(options)) return fail_to_start(options, *problem);
  Meeting meeting = open_meeting(options, print_note);  // a signal still ends us: nothing runs yet
  net::SignalFd signals(watched_signals());
  net::Job job;
  net::Guardian guardian(job);
  serve(meeting, options);
  try {
    return Supervisor(options, meeting, job, guardian).run(signals);
  } catch (const net::SystemError& error) {
    print_note(error.what());
    return code_of_failed_start(error.code());
  }
}

}  // namespace paceline::apps
