// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/tcp_control.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <utility>

#include "paceline/base/mutex.h"
#include "paceline/net/poll.h"
#include "paceline/net/wakeup.h"

namespace paceline::store {
namespace {

class TcpControl final : public Control {
 public:
  TcpControl(Channel channel,
             std::deque<Event> early,
             std::string store,
             std::chrono::milliseconds tick_interval)
      : store_(std::move(store)),
        tick_interval_(tick_interval),
        socket_(std::move(channel.socket)),
        out_(std::move(channel.out)),
        in_(std::move(channel.in)),
        events_(std::move(early)) {}

  void publish(const Standing& standing) noexcept override { send(standing); }
  void report(const Cause& cause) noexcept override { send(cause); }

  std::optional<Event> next(Deadline deadline) override {
    for (bool looked = false;; looked = true) {
      read();
      if (!events_.empty()) {
        Event event = std::move(events_.front());
        events_.pop_front();
        return event;
      }
      if (interrupted_.exchange(false) || (looked && deadline.passed())) return std::nullopt;
      tick();
      sleep(deadline);
    }
  }

  void interrupt() noexcept override {
    interrupted_ = true;
    wakeup_.wake();
  }

 private:
  void send(const Message& message) noexcept {
    try {
      MutexLock lock(mutex_);
      out_.push(message);
      out_.flush(socket_);                     // that the store is gone is seen by read()
      if (out_.unsent() != 0) wakeup_.wake();  // next() sends the rest
    } catch (...) {  // only memory can be short here; the deadline of the call remains
    }
  }

  void tick() {
    if (lost_ || Clock::now() < next_tick_) return;
    next_tick_ = Clock::now() + tick_interval_;
    MutexLock lock(mutex_);
    if (out_.unsent() == 0) out_.push(Tick{});  // what waits already says that we are alive
    out_.flush(socket_);
  }

  bool flush_rest() {
    MutexLock lock(mutex_);
    out_.flush(socket_);
    return out_.unsent() != 0;
  }

  void sleep(Deadline deadline) {
    const bool rest = !lost_ && flush_rest();
    std::array<net::PollItem, 2> items{
        net::PollItem{.fd = &wakeup_.fd(), .recv = true},
        net::PollItem{.fd = lost_ ? nullptr : &socket_, .send = rest, .recv = true}};
    if (!lost_) deadline = Deadline::earlier(deadline, Deadline::after(next_tick_ - Clock::now()));
    net::poll(items, deadline);
    wakeup_.drain();
  }

  void read() {
    if (lost_) return;
    bool alive = in_.pull(socket_);
    std::string how = "closed the connection";
    try {
      while (auto message = in_.next())
        if (auto* event = std::get_if<Event>(&*message)) events_.push_back(std::move(*event));
    } catch (const BadMessage& bad) {
      alive = false;
      how = bad.what();
    }
    if (!alive) lose(how);
  }

  void lose(const std::string& how) {
    lost_ = true;
    events_.push_back(
        {.kind = Event::Kind::kCause,
         .cause = {.code = CommErrc::kPeerClosed,
                   .rank = -1,
                   .peer = -1,
                   .from_sequence = 0,
                   .text = fmt::format("the store at {} is lost ({}): has the launcher ended?",
                                       store_, how)}});
  }

  const std::string store_;
  const std::chrono::milliseconds tick_interval_;
  const net::Fd socket_;
  net::Wakeup wakeup_;
  std::atomic<bool> interrupted_{false};

  Mutex mutex_;
  Outlet out_ PACELINE_GUARDED_BY(mutex_);

  // Of the thread that calls next().
  Inlet in_;
  std::deque<Event> events_;
  Clock::time_point next_tick_ = Clock::now();
  bool lost_ = false;
};

}  // namespace

std::unique_ptr<Control> make_tcp_control(Channel channel,
                                          std::deque<Event> early,
                                          const std::string& store,
                                          std::chrono::milliseconds tick_interval) {
  return std::make_unique<TcpControl>(std::move(channel), std::move(early), store, tick_interval);
}

}  // namespace paceline::store
