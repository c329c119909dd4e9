// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/guardian.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

constexpr std::size_t kMaxGroups = 65536;
constexpr int kDismissed = 0;

/// The groups to kill; static, as the guardian must not allocate.
std::array<int, kMaxGroups> groups;

/// Descriptors of the parent would keep its pipes open: who reads its output would wait for ever.
void close_all_but(int keep) noexcept {
  const auto number = static_cast<unsigned>(keep);
  if (number > 0) (void)::syscall(SYS_close_range, 0U, number - 1, 0U);
  if (::syscall(SYS_close_range, number + 1, ~0U, 0U) == 0) return;
  for (int fd = 0; fd < 4096; ++fd)  // before Linux 5.9
    if (fd != keep) ::close(fd);
}

void block_all_signals() noexcept {
  sigset_t all;
  sigfillset(&all);
  (void)::sigprocmask(SIG_SETMASK, &all, nullptr);
}

/// Collects numbers until the parent dismisses us or its end of the line closes.
[[noreturn]] void guard(int line, Job& job) noexcept {
  (void)::setpgid(0, 0);  // Ctrl-C is not for us
  (void)::prctl(PR_SET_NAME, "paceline-guard");
  block_all_signals();
  close_all_but(line);
  std::size_t count = 0;
  int number = 0;
  for (;;) {
    const ssize_t got = ::read(line, &number, sizeof number);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof number) break;
    if (number == kDismissed) ::_exit(0);
    if (count < kMaxGroups) groups[count++] = number;
  }
  for (std::size_t i = 0; i < count; ++i) (void)::killpg(groups[i], SIGKILL);
  job.kill();
  ::_exit(0);
}

}  // namespace

Guardian::Guardian(Job& job) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("making a pipe");
  Fd read_end(ends[0]);
  line_ = Fd(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) throw_errno("making the guardian process", "is the limit of processes reached?");
  if (pid_ == 0) guard(read_end.raw(), job);
}

Guardian::~Guardian() {
  const int word = kDismissed;
  (void)!::write(line_.raw(), &word, sizeof word);
  line_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(int leader) {
  if (::write(line_.raw(), &leader, sizeof leader) != sizeof leader)
    throw_errno("telling the guardian process");
}

}  // namespace paceline::net
