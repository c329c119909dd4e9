// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/poll.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <vector>

#include "paceline/net/system_error.h"
#include "paceline/net/time.h"

namespace paceline::net {
namespace {

constexpr short kFailed = POLLERR | POLLHUP | POLLNVAL;

pollfd wanted(const PollItem& item) {
  pollfd entry{};
  const bool any = item.fd != nullptr && (item.send || item.recv);
  entry.fd = any ? item.fd->raw() : -1;  // poll() skips negative ones: no hang-up nobody asked for
  entry.events = static_cast<short>((item.send ? POLLOUT : 0) | (item.recv ? POLLIN : 0));
  return entry;
}

void sleep_on(std::span<pollfd> entries, Deadline deadline) {
  for (;;) {
    timespec left{};
    if (!deadline.is_never()) left = to_timespec(deadline.left());
    const int ready =
        ::ppoll(entries.data(), entries.size(), deadline.is_never() ? nullptr : &left, nullptr);
    if (ready >= 0) return;
    if (errno != EINTR) throw_errno("waiting for descriptors");
  }
}

std::size_t poll_with(std::span<pollfd> entries, std::span<PollItem> items, Deadline deadline) {
  for (std::size_t i = 0; i < items.size(); ++i) entries[i] = wanted(items[i]);
  sleep_on(entries, deadline);
  std::size_t count = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const short got = entries[i].revents;
    items[i].can_send = items[i].send && (got & (POLLOUT | kFailed)) != 0;
    items[i].can_recv = items[i].recv && (got & (POLLIN | kFailed)) != 0;
    if (items[i].can_send || items[i].can_recv) ++count;
  }
  return count;
}

}  // namespace

std::size_t poll(std::span<PollItem> items, Deadline deadline) {
  constexpr std::size_t kFew = 32;
  if (items.size() <= kFew) {
    std::array<pollfd, kFew> entries;
    return poll_with(std::span(entries).first(items.size()), items, deadline);
  }
  std::vector<pollfd> entries(items.size());
  return poll_with(entries, items, deadline);
}

bool wait_readable(const Fd& fd, Deadline deadline) {
  PollItem item{.fd = &fd, .recv = true};
  return poll({&item, 1}, deadline) != 0;
}

bool wait_writable(const Fd& fd, Deadline deadline) {
  PollItem item{.fd = &fd, .send = true};
  return poll({&item, 1}, deadline) != 0;
}

}  // namespace paceline::net
