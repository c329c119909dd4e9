// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/job.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "paceline/base/deadline.h"
#include "paceline/net/fd.h"
#include "paceline/net/host.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

constexpr std::chrono::milliseconds kLongest = std::chrono::seconds(2);

constexpr int kLooksAgain = 20;

enum class Mark { kAbsent, kPresent, kUnclear };

/// Whether the process has a program, as kernel threads and zombies have not.
bool has_program(int number) noexcept {
  std::array<char, 64> path{};
  std::array<char, 1> first{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%d/exe", number);
  return ::readlink(path.data(), first.data(), first.size()) > 0;
}

/// Whether `id` is in the environment with which process `number` began its program. Reads piece
/// by piece; the end of each stays, as the id may lie across two of them. In the middle of an
/// exec() the environment looks empty.
Mark mark_of(int number, std::string_view id) noexcept {
  std::array<char, 64> path{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%d/environ", number);
  const Fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  std::array<char, 16 << 10> piece{};
  std::size_t kept = 0;
  for (;;) {
    const ssize_t got = ::read(file.raw(), piece.data() + kept, piece.size() - kept);
    if (got <= 0 && kept == 0) return has_program(number) ? Mark::kUnclear : Mark::kAbsent;
    if (got <= 0) return Mark::kAbsent;
    const std::string_view text(piece.data(), kept + static_cast<std::size_t>(got));
    if (text.find(id) != std::string_view::npos) return Mark::kPresent;
    kept = std::min(text.size(), id.size() - 1);
    std::memmove(piece.data(), text.data() + text.size() - kept, kept);
  }
}

/// What one look at all processes has found.
struct Look {
  int killed = 0;
  int unclear = 0;
};

/// The descriptor is opened first: should the number go to a stranger, the signal meets nobody.
void kill_if_it_carries(int number, std::string_view id, Look& look) noexcept {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, number, 0U)));
  if (!process) return;
  const Mark mark = mark_of(number, id);
  if (mark == Mark::kUnclear) ++look.unclear;
  if (mark == Mark::kPresent &&
      ::syscall(SYS_pidfd_send_signal, process.raw(), SIGKILL, nullptr, 0U) == 0)
    ++look.killed;
}

/// The process that an entry of /proc stands for, 0 if none.
int number_of(std::string_view name) noexcept {
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : 0;
}

/// Looks once at all processes and kills those that carry `id`.
Look kill_all_that_carry(std::string_view id) noexcept {
  const Fd folder(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  alignas(dirent64) std::array<char, 8 << 10> entries{};
  Look look;
  for (;;) {
    const ssize_t got = ::getdents64(folder.raw(), entries.data(), entries.size());
    if (got <= 0) return look;
    for (ssize_t at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      const int number = number_of(entry->d_name);
      if (number > 0 && number != ::getpid()) kill_if_it_carries(number, id, look);
      at += entry->d_reclen;
    }
  }
}

}  // namespace

Job::Job() : id_(random_digits()) {}

Job::~Job() {
  if (!killed_) kill();
}

void Job::kill() noexcept {
  killed_ = true;
  const Deadline deadline = Deadline::after(kLongest);
  for (int unclear = 0; unclear < kLooksAgain && !deadline.passed();) {
    const Look look = kill_all_that_carry(id());
    if (look.killed == 0 && look.unclear == 0) return;
    unclear = look.killed == 0 ? unclear + 1 : 0;
    (void)::poll(nullptr, 0, 1);
  }
}

}  // namespace paceline::net
