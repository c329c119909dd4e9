// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "paceline/net/host.h"
#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"
#include "paceline/store/channel.h"
#include "paceline/store/dial.h"
#include "paceline/store/mesh.h"
#include "paceline/store/tcp_control.h"
#include "paceline/store/verdict.h"

namespace paceline::store {
namespace {

void check(const JoinOptions& o) {
  if (o.world < 1) throw UsageError(fmt::format("a world of {} ranks", o.world));
  if (o.rank < 0 || o.rank >= o.world)
    throw UsageError(fmt::format("rank {} is out of range in a world of {}", o.rank, o.world));
  if (o.connect_timeout.count() <= 0)
    throw UsageError(fmt::format("a connect timeout of {} ms", o.connect_timeout.count()));
}

class Joiner {
 public:
  explicit Joiner(const JoinOptions& options)
      : options_(options),
        deadline_(Deadline::after(options.connect_timeout)),
        store_(name_of_store(options)),
        entries_(static_cast<std::size_t>(options.world)) {}

  Membership run() {
    channel_.emplace(dial_store(options_, deadline_));
    listen();
    say_hello();
    while (known_ < entries_.size()) pump();
    link();
    say(Ready{});
    while (!started_) pump();
    return membership();
  }

 private:
  [[noreturn]] void fail(CommErrc code, int peer, const std::string& text) const {
    throw join_error(options_, code, peer, text);
  }

  void listen();
  void say_hello();

  // While others come and connect.
  void link();
  void pump();
  void sleep();
  void tick();
  void read();
  void take(Message& message);
  void take_table(const Table& table);
  void check_deadline();
  void report_missing();
  void say(const Message& message);
  Membership membership();

  const JoinOptions& options_;
  const Deadline deadline_;
  const std::string store_;
  std::optional<Channel> channel_;
  net::Fd listener_;
  std::optional<Mesh> mesh_;
  std::vector<Table::Entry> entries_;
  std::size_t known_ = 0;  // entries that have come
  std::uint32_t generation_ = 0;
  bool started_ = false;
  bool reported_ = false;
  std::deque<Event> early_;
  Clock::time_point next_tick_ = Clock::now();
};

/// Where the store is reached, the other ranks are reached: loopback or this host's address there.
void Joiner::listen() {
  std::string host = "127.0.0.1";
  if (!is_local(options_)) {
    const std::string address = net::local_address(channel_->socket);
    host = address.substr(0, address.rfind(':'));
  }
  try {
    listener_ = net::listen_tcp(host, 0);
  } catch (const net::SystemError& error) {
    fail(CommErrc::kConnectFailed, -1, error.what());
  }
}

void Joiner::say_hello() {
  say(Hello{.patience = std::chrono::ceil<std::chrono::milliseconds>(deadline_.left()),
            .connect_timeout = options_.connect_timeout,
            .host = net::host_name(),
            .address = net::local_address(listener_),
            .algorithm = options_.algorithm});
}

void Joiner::say(const Message& message) {
  channel_->out.push(message);
  channel_->out.flush(channel_->socket);  // a broken one is seen by read()
}

void Joiner::link() {
  MeshOptions options{
      .rank = options_.rank, .generation = generation_, .secret = options_.secret, .addresses = {}};
  for (const auto& entry : entries_) options.addresses.push_back(entry.address);
  mesh_.emplace(listener_, options, deadline_);
  try {
    mesh_->step();
    while (!mesh_->done()) pump();
  } catch (const BadMessage& bad) {
    fail(CommErrc::kConnectFailed, -1, bad.what());
  }
}

void Joiner::pump() {
  sleep();
  tick();
  read();
  if (mesh_) {
    try {
      mesh_->step();
    } catch (const CommError& error) {
      say(Cause{error.code(), options_.rank, error.peer(), 0, error.what()});
      throw;
    }
  }
  check_deadline();
}

void Joiner::sleep() {
  std::vector<net::PollItem> items;
  items.push_back({.fd = &channel_->socket, .send = channel_->out.unsent() != 0, .recv = true});
  Deadline until = Deadline::after(next_tick_ - Clock::now());
  if (mesh_) {
    mesh_->want(items);
    until = Deadline::earlier(until, mesh_->next());
  }
  const auto left = deadline_.left();
  until = Deadline::earlier(until, Deadline::after(left.count() > 0 ? left : kVerdictGrace / 8));
  net::poll(items, until);
}

void Joiner::tick() {
  if (Clock::now() < next_tick_) return;
  next_tick_ = Clock::now() + kTickInterval;
  say(Tick{});
}

void Joiner::read() {
  channel_->out.flush(channel_->socket);
  bool alive = channel_->in.pull(channel_->socket);
  try {
    while (auto message = channel_->in.next()) take(*message);
  } catch (const BadMessage&) {
    alive = false;
  }
  if (!alive && !started_)
    fail(CommErrc::kConnectFailed, -1,
         fmt::format("the store at {} has closed the connection: has the launcher ended?", store_));
}

void Joiner::take(Message& message) {
  if (const auto* table = std::get_if<Table>(&message)) take_table(*table);
  if (std::holds_alternative<Start>(message)) started_ = true;
  auto* event = std::get_if<Event>(&message);
  if (event == nullptr) return;
  if (event->kind == Event::Kind::kCause && !started_)
    fail(event->cause.code, event->cause.peer, event->cause.text);
  early_.push_back(std::move(*event));
}

void Joiner::take_table(const Table& table) {
  if (table.first != known_ || table.entries.size() > entries_.size() - known_)
    throw BadMessage("a table of peers that does not fit");
  std::ranges::copy(table.entries, entries_.begin() + static_cast<std::ptrdiff_t>(known_));
  known_ += table.entries.size();
  generation_ = table.generation;
}

void Joiner::check_deadline() {
  if (started_ || !deadline_.passed()) return;
  if (mesh_ && !mesh_->done() && !reported_) report_missing();
  if (Clock::now() < deadline_.when() + kVerdictGrace) return;
  fail(CommErrc::kConnectFailed, -1,
       fmt::format("the store at {} has not said within {} that all ranks have come", store_,
                   name_duration(options_.connect_timeout)));
}

void Joiner::report_missing() {
  reported_ = true;
  const auto absent = mesh_->missing();
  const auto [dialled, dials] = std::minmax(options_.rank, absent.front());
  const Table::Entry& at = entries_[static_cast<std::size_t>(dialled)];
  say(Cause{
      .code = CommErrc::kConnectFailed,
      .rank = options_.rank,
      .peer = absent.front(),
      .from_sequence = 0,
      .text = fmt::format(
          "rank {} has no data connection with {} after {}; rank {} dials rank {} at {} ({}): "
          "does that host let it in?",
          options_.rank, name_ranks(absent), name_duration(options_.connect_timeout), dials,
          dialled, at.address, at.host)});
}

Membership Joiner::membership() {
  Membership result;
  result.sockets = mesh_->take_sockets();
  result.generation = generation_;
  result.control = make_tcp_control(std::move(*channel_), std::move(early_), store_);
  return result;
}

}  // namespace

Membership join(const JoinOptions& options) {
  check(options);
  try {
    return Joiner(options).run();
  } catch (const net::SystemError& error) {
    throw join_error(options, CommErrc::kConnectFailed, -1, error.what());
  }
}

}  // namespace paceline::store
