// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/signals.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

struct Entry {
  int signal;
  std::string_view name;
  std::string_view meaning;
};

constexpr std::array kSignals{
    Entry{SIGHUP, "SIGHUP", "the terminal was closed"},
    Entry{SIGINT, "SIGINT", "interrupted, as by Ctrl-C"},
    Entry{SIGQUIT, "SIGQUIT", "asked to quit and leave a core file"},
    Entry{SIGILL, "SIGILL", "illegal instruction: built for another processor?"},
    Entry{SIGTRAP, "SIGTRAP", "trace or breakpoint trap"},
    Entry{SIGABRT, "SIGABRT", "the program gave up: an assertion or an uncaught exception"},
    Entry{SIGBUS, "SIGBUS", "bad memory access: a truncated file or full shared memory"},
    Entry{SIGFPE, "SIGFPE", "arithmetic error, as integer division by zero"},
    Entry{SIGKILL, "SIGKILL", "killed: by hand, or by the kernel when memory ran out"},
    Entry{SIGUSR1, "SIGUSR1", ""},
    Entry{SIGSEGV, "SIGSEGV", "invalid memory access"},
    Entry{SIGUSR2, "SIGUSR2", ""},
    Entry{SIGPIPE, "SIGPIPE", "wrote to a pipe that nobody reads"},
    Entry{SIGALRM, "SIGALRM", "a timer ran out"},
    Entry{SIGTERM, "SIGTERM", "asked to end"},
    Entry{SIGCHLD, "SIGCHLD", "a child ended"},
    Entry{SIGCONT, "SIGCONT", "continued"},
    Entry{SIGSTOP, "SIGSTOP", "stopped"},
    Entry{SIGTSTP, "SIGTSTP", "stopped from the terminal"},
    Entry{SIGTTIN, "SIGTTIN", "read the terminal from the background"},
    Entry{SIGTTOU, "SIGTTOU", "wrote to the terminal from the background"},
    Entry{SIGXCPU, "SIGXCPU", "the limit of CPU time was reached"},
    Entry{SIGXFSZ, "SIGXFSZ", "the limit of file size was reached"},
    Entry{SIGSYS, "SIGSYS", "forbidden system call"},
};

const Entry* find(int signal) noexcept {
  for (const Entry& entry : kSignals)
    if (entry.signal == signal) return &entry;
  return nullptr;
}

}  // namespace

bool is_ignored(int signal) {
  struct sigaction action {};
  if (::sigaction(signal, nullptr, &action) != 0) throw_errno("looking at a signal's action");
  return action.sa_handler == SIG_IGN;
}

SignalFd::SignalFd(std::span<const int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  fd_ = Fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_) throw_errno("making a signal descriptor");
  if (const int code = ::pthread_sigmask(SIG_BLOCK, &set, &previous_); code != 0)
    throw SystemError(code, "blocking signals");
}

SignalFd::~SignalFd() { (void)::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

std::optional<int> SignalFd::next() {
  signalfd_siginfo info{};
  for (;;) {
    if (::read(fd_.raw(), &info, sizeof info) == sizeof info)
      return static_cast<int>(info.ssi_signo);
    if (errno == EAGAIN) return std::nullopt;
    if (errno != EINTR) throw_errno("reading a signal");
  }
}

std::string signal_name(int signal) {
  const Entry* entry = find(signal);
  return entry != nullptr ? std::string(entry->name) : fmt::format("signal {}", signal);
}

std::string_view signal_meaning(int signal) noexcept {
  const Entry* entry = find(signal);
  return entry != nullptr ? entry->meaning : std::string_view();
}

}  // namespace paceline::net
