// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "paceline/base/checked_cast.h"
#include "paceline/base/types.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/store/channel.h"
#include "paceline/store/half_open.h"
#include "paceline/store/hosts.h"
#include "paceline/store/verdict.h"

namespace paceline::store {
namespace {

constexpr std::chrono::seconds kFarewell{2};  // for the verdict to leave

/// Another host's launcher. Without a report it does not count yet.
struct Visitor {
  Channel channel;
  int node = 0;
  std::optional<HostReport> report = {};
  bool gone = false;
};

Terms terms_of(const HostOptions& options) {
  return {.side = Side::kAcceptor,
          .purpose = Purpose::kHosts,
          .rank = kStoreRank,
          .peer = kAnyRank,
          .world = checked_cast<std::uint32_t>(options.nodes),
          .secret = options.secret};
}

class Receiver {
 public:
  Receiver(const net::Fd& listener, const HostOptions& options)
      : options_(options),
        deadline_(Deadline::after(options.connect_timeout)),
        address_(net::local_address(listener)),
        gate_(listener, terms_of(options)) {}
  Layout run();

 private:
  [[nodiscard]] std::vector<int> missing() const;
  void sleep();
  void open_door();
  void read(Visitor& visitor);
  void take(Visitor& visitor, const Message& message);
  void forget_the_gone();
  void tell(const std::string& text);
  void tell_who_is_missing();
  [[nodiscard]] int ranks_of(int node) const;
  void deal();
  void send_verdicts();
  [[noreturn]] void fail(CommErrc code, const std::string& text);

  const HostOptions& options_;
  const Deadline deadline_;
  const std::string address_;
  Gate gate_;
  std::list<Visitor> visitors_;
  std::set<std::string> told_;
  std::string problem_;  // told to all once all have come
  Deadline tell_at_ = Deadline::after(kPatience);
};

Layout Receiver::run() {
  if (!options_.problem.empty()) problem_ = fmt::format("host 0: {}", options_.problem);
  while (!missing().empty()) {
    sleep();
    open_door();
    for (Visitor& visitor : visitors_) read(visitor);
    forget_the_gone();
    tell_who_is_missing();
    if (deadline_.passed() && !missing().empty())
      fail(CommErrc::kConnectFailed,
           fmt::format("{} did not come within {}; host 0 listens at {}, is that where they look, "
                       "with --node-rank as said here?",
                       name_hosts(missing()), name_duration(options_.connect_timeout), address_));
  }
  if (!problem_.empty()) fail(CommErrc::kRefused, problem_);
  std::int64_t world = 0;
  for (int node = 0; node < options_.nodes; ++node) world += ranks_of(node);
  if (world > kMaxWorldSize)
    fail(CommErrc::kRefused,
         fmt::format("all hosts together start {} ranks, more than {}", world, kMaxWorldSize));
  deal();
  return {.world = static_cast<int>(world), .first_rank = 0};
}

std::vector<int> Receiver::missing() const {
  std::vector<int> result;
  for (int node = 1; node < options_.nodes; ++node)
    if (ranks_of(node) == 0) result.push_back(node);
  return result;
}

int Receiver::ranks_of(int node) const {
  if (node == 0) return options_.ranks;
  for (const Visitor& visitor : visitors_)
    if (visitor.node == node && visitor.report) return static_cast<int>(visitor.report->ranks);
  return 0;
}

void Receiver::sleep() {
  std::vector<net::PollItem> items;
  for (const Visitor& visitor : visitors_)
    items.push_back({.fd = &visitor.channel.socket, .recv = true});
  gate_.want(items);
  net::poll(items, Deadline::earlier(Deadline::earlier(gate_.next(), deadline_), tell_at_));
}

void Receiver::open_door() {
  gate_.step();
  for (Guest& guest : gate_.take_guests())
    visitors_.push_back(
        {.channel = Channel(std::move(guest.socket), guest.session_key, Side::kAcceptor),
         .node = guest.rank});
  for (const Offender& offender : gate_.take_offenders())
    fail(CommErrc::kRefused,
         offender.refusal.code == RefusalCode::kWorld
             ? fmt::format("--nnodes differs: {} on host 0, {} on host {}", offender.refusal.ours,
                           offender.refusal.theirs, offender.rank)
             : fmt::format("host {} was refused: {}", offender.rank, to_text(offender.refusal)));
  for (const Stranger& stranger : gate_.take_strangers())
    tell(fmt::format("still waiting for {}: a connection from {} was refused: {}",
                     name_hosts(missing()), stranger.address, to_text(stranger.refusal)));
}

void Receiver::read(Visitor& visitor) {
  bool alive = visitor.channel.in.pull(visitor.channel.socket);
  try {
    while (const auto message = visitor.channel.in.next()) take(visitor, *message);
  } catch (const BadMessage&) {
    alive = false;
  }
  visitor.gone = !alive;
}

void Receiver::take(Visitor& visitor, const Message& message) {
  const auto* report = std::get_if<HostReport>(&message);
  if (report == nullptr || visitor.report || visitor.node == 0)
    throw BadMessage("a host says one thing: its report");
  if (report->ranks < 1 || report->ranks > std::uint32_t{kMaxWorldSize})
    throw BadMessage("a host starts no ranks, or too many");
  for (const Visitor& other : visitors_)
    if (other.node == visitor.node && other.report && !other.gone)
      fail(CommErrc::kRefused, fmt::format("--node-rank {} is taken twice: by {} and by {}",
                                           visitor.node, other.report->host, report->host));
  visitor.report = *report;
  if (report->problem.empty() || !problem_.empty()) return;
  problem_ = fmt::format("host {} ({}): {}", visitor.node, report->host, report->problem);
  tell(problem_);
}

/// A launcher that ends before the job starts may come again.
void Receiver::forget_the_gone() {
  for (const Visitor& visitor : visitors_)
    if (visitor.gone && visitor.report)
      tell(fmt::format("host {} ({}) has left again", visitor.node, visitor.report->host));
  visitors_.remove_if([](const Visitor& visitor) { return visitor.gone; });
}

void Receiver::tell(const std::string& text) {
  constexpr std::size_t kMost = 20;  // a crowd of strangers must not fill the screen
  if (told_.size() < kMost && told_.insert(text).second) options_.tell(text);
}

void Receiver::tell_who_is_missing() {
  if (!tell_at_.passed()) return;
  tell_at_ = Deadline::after(kPatience);
  const auto absent = missing();
  if (!absent.empty())
    tell(fmt::format("waiting at {} for {} of {}", address_, name_hosts(absent), options_.nodes));
}

/// Gives each host its first rank.
void Receiver::deal() {
  std::uint32_t world = 0;
  std::vector<std::uint32_t> first;
  for (int node = 0; node < options_.nodes; ++node) {
    first.push_back(world);
    world += static_cast<std::uint32_t>(ranks_of(node));
  }
  for (Visitor& visitor : visitors_)
    visitor.channel.out.push(
        HostVerdict{.world = world,
                    .first_rank = first[static_cast<std::size_t>(visitor.node)],
                    .problem = ""});
  send_verdicts();
}

void Receiver::send_verdicts() {
  const Deadline limit = Deadline::after(kFarewell);
  while (!limit.passed()) {
    std::vector<net::PollItem> items;
    for (Visitor& visitor : visitors_) {
      if (!visitor.gone) visitor.gone = !visitor.channel.out.flush(visitor.channel.socket);
      if (!visitor.gone && visitor.channel.out.unsent() != 0)
        items.push_back({.fd = &visitor.channel.socket, .send = true});
    }
    if (items.empty()) return;
    net::poll(items, limit);
  }
}

void Receiver::fail(CommErrc code, const std::string& text) {
  for (Visitor& visitor : visitors_)
    visitor.channel.out.push(HostVerdict{.world = 0, .first_rank = 0, .problem = text});
  send_verdicts();
  throw CommError(code, -1, -1, text);
}

}  // namespace

Layout receive_hosts(const net::Fd& listener, const HostOptions& options) {
  return Receiver(listener, options).run();
}

}  // namespace paceline::store
