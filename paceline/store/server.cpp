// SPDX-License-Identifier: Apache-2.0
// One thread, one poll() over the listener and all connections; decisions are Reception's.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <list>
#include <thread>
#include <utility>

#include "paceline/base/checked_cast.h"
#include "paceline/base/mutex.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/wakeup.h"
#include "paceline/store/channel.h"
#include "paceline/store/half_open.h"
#include "paceline/store/join.h"
#include "paceline/store/reception.h"

namespace paceline::store {
namespace {

constexpr std::chrono::seconds kHelloLimit{2};
constexpr std::size_t kMostUnsent = std::size_t{4} << 20;  // a rank that never reads is cut off

Terms terms_of(const ServerOptions& options) {
  return {.side = Side::kAcceptor,
          .purpose = Purpose::kControl,
          .rank = kStoreRank,
          .peer = kAnyRank,
          .world = checked_cast<std::uint32_t>(options.world),
          .secret = options.secret};
}

net::Fd prepared(net::Fd listener) {
  if (!listener) throw UsageError("the store needs a listening socket");
  net::make_nonblocking(listener);
  net::make_close_on_exec(listener);
  return listener;
}

}  // namespace

struct Server::State {
  /// A rank's connection. Without a session it still owes its hello, or is being told why it must
  /// go.
  struct Peer {
    Channel channel;
    int rank = 0;
    Session* session = nullptr;
    Deadline leave_by = Deadline::after(kHelloLimit);
    bool told_to_go = false;
    bool gone = false;
  };

  State(net::Fd socket, const ServerOptions& options)
      : listener(prepared(std::move(socket))),
        gate(listener, terms_of(options)),
        reception(options, net::local_address(listener)) {}

  void run(const std::stop_token& stop);
  void turn();
  void sleep();
  void take_notes();
  void open_door();
  void tell_of_strangers();
  void read(Peer& peer);
  void take(Peer& peer, const Message& message);
  void take_hello(Peer& peer, const Message& message);
  void refuse(Peer& peer, const std::string& text);
  void dispatch();
  void sweep();

  // The thread's own.
  net::Fd listener;
  Gate gate;
  Reception reception;
  std::list<Peer> peers;
  std::uint64_t silent_guests = 0;

  net::Wakeup wakeup;
  net::Wakeup bell;  // notices wait
  std::atomic<std::uint64_t> strangers{0};
  Mutex mutex;
  std::vector<std::pair<int, std::string>> notes PACELINE_GUARDED_BY(mutex);
  std::vector<std::string> notices PACELINE_GUARDED_BY(mutex);

  std::jthread thread;
};

void Server::State::run(const std::stop_token& stop) {
  // Whatever goes wrong here closes the connections: the ranks then say that the store is lost.
  try {
    while (!stop.stop_requested()) turn();
  } catch (const std::exception&) {
    peers.clear();
  }
  peers.clear();
}

void Server::State::turn() {
  sleep();
  take_notes();
  open_door();
  reception.advance(Clock::now());
  dispatch();
  sweep();
  dispatch();  // what the departures found by sweep() have to say
}

void Server::State::sleep() {
  std::vector<net::PollItem> items;
  items.push_back({.fd = &wakeup.fd(), .recv = true});
  for (const Peer& peer : peers)
    items.push_back(
        {.fd = &peer.channel.socket, .send = peer.channel.out.unsent() != 0, .recv = true});
  gate.want(items);
  Deadline deadline = gate.next();
  if (const auto next = reception.next(); next != Clock::time_point::max())
    deadline = Deadline::earlier(deadline, Deadline::after(next - Clock::now()));
  for (const Peer& peer : peers)
    if (peer.session == nullptr) deadline = Deadline::earlier(deadline, peer.leave_by);
  net::poll(items, deadline);
  wakeup.drain();
  auto item = items.begin() + 1;
  for (Peer& peer : peers)
    if ((item++)->can_recv) read(peer);
}

void Server::State::take_notes() {
  std::vector<std::pair<int, std::string>> taken;
  {
    MutexLock lock(mutex);
    taken.swap(notes);
  }
  for (const auto& [rank, how] : taken) reception.note_exit(rank, how, Clock::now());
}

void Server::State::open_door() {
  gate.step();
  for (Guest& guest : gate.take_guests())
    peers.push_back(
        {.channel = Channel(std::move(guest.socket), guest.session_key, Side::kAcceptor),
         .rank = guest.rank});
  for (const Offender& offender : gate.take_offenders())
    reception.turn_away(offender, Clock::now());
  strangers = gate.strangers() + silent_guests;
  tell_of_strangers();
}

void Server::State::tell_of_strangers() {
  for (const Stranger& stranger : gate.take_strangers()) reception.note_stranger(stranger);
  auto fresh = reception.take_notices();
  if (fresh.empty()) return;
  {
    MutexLock lock(mutex);
    std::ranges::move(fresh, std::back_inserter(notices));
  }
  bell.wake();
}

void Server::State::read(Peer& peer) {
  bool alive = peer.channel.in.pull(peer.channel.socket);
  try {
    while (const auto message = peer.channel.in.next()) take(peer, *message);
  } catch (const BadMessage&) {
    alive = false;
  }
  if (!alive) peer.gone = true;
}

void Server::State::take(Peer& peer, const Message& message) {
  if (peer.told_to_go) return;
  if (peer.session == nullptr) return take_hello(peer, message);
  peer.session->take(peer.rank, message, Clock::now());
}

void Server::State::take_hello(Peer& peer, const Message& message) {
  const auto* hello = std::get_if<Hello>(&message);
  if (hello == nullptr) throw BadMessage("a rank did not say hello first");
  const auto now = Clock::now();
  std::string refusal;
  peer.session = reception.welcome(peer.rank, *hello, now, refusal);
  if (peer.session == nullptr) return refuse(peer, refusal);
  peer.session->admit(peer.rank, *hello, now);
}

void Server::State::refuse(Peer& peer, const std::string& text) {
  Event event;
  event.cause = {.code = CommErrc::kRefused,
                 .rank = peer.rank,
                 .peer = peer.rank,
                 .from_sequence = 0,
                 .text = text};
  peer.channel.out.push(event);
  peer.channel.out.flush(peer.channel.socket);
  peer.told_to_go = true;
  peer.leave_by = Deadline::after(kHelloLimit);
}

void Server::State::dispatch() {
  for (Session& session : reception.sessions())
    for (auto& [to, message] : session.take_outgoing())
      for (Peer& peer : peers)
        if (peer.session == &session && peer.rank == to && !peer.gone)
          peer.channel.out.push(message);
  for (Peer& peer : peers) {
    peer.channel.out.flush(peer.channel.socket);  // a broken one is seen by read()
    if (peer.channel.out.unsent() > kMostUnsent) peer.gone = true;
  }
}

void Server::State::sweep() {
  for (auto peer = peers.begin(); peer != peers.end();) {
    const bool overdue = peer->session == nullptr && peer->leave_by.passed();
    if (!peer->gone && !overdue) {
      ++peer;
      continue;
    }
    if (overdue && !peer->told_to_go) ++silent_guests;
    if (peer->session != nullptr) peer->session->closed(peer->rank, Clock::now());
    peer = peers.erase(peer);
  }
  reception.forget_finished();
}

Server::Server(net::Fd listener, ServerOptions options) {
  if (options.world < 1) throw UsageError(fmt::format("a world of {} ranks", options.world));
  state_ = std::make_unique<State>(std::move(listener), options);
  State* state = state_.get();
  state->thread = std::jthread([state](const std::stop_token& stop) { state->run(stop); });
}

Server::~Server() {
  state_->thread.request_stop();
  state_->wakeup.wake();
}

void Server::note_exit(int rank, const std::string& how) {
  {
    MutexLock lock(state_->mutex);
    state_->notes.emplace_back(rank, how);
  }
  state_->wakeup.wake();
}

std::vector<std::string> Server::take_notices() {
  state_->bell.drain();  // first: a notice that comes meanwhile rings again
  MutexLock lock(state_->mutex);
  return std::exchange(state_->notices, {});
}

const net::Fd& Server::notices() const { return state_->bell.fd(); }

std::uint64_t Server::strangers() const { return state_->strangers.load(); }

}  // namespace paceline::store
