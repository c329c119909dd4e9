// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "paceline/net/system_error.h"
#include "paceline/net/time.h"

namespace paceline::net {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

int operation(int verb, FutexScope scope) {
  return scope == FutexScope::kPrivate ? verb | FUTEX_PRIVATE_FLAG : verb;
}

}  // namespace

bool futex_wait(const std::atomic<std::uint32_t>& word,
                std::uint32_t expected,
                Deadline deadline,
                FutexScope scope) {
  // The bitset form takes an absolute time on the clock that steady_clock reads.
  const timespec when = to_timespec(deadline.when().time_since_epoch());
  const long result =
      ::syscall(SYS_futex, &word, operation(FUTEX_WAIT_BITSET, scope), expected,
                deadline.is_never() ? nullptr : &when, nullptr, FUTEX_BITSET_MATCH_ANY);
  if (result == 0 || errno == EAGAIN || errno == EINTR) return true;
  if (errno == ETIMEDOUT) return false;
  throw_errno("waiting on a futex");
}

void futex_wake_all(std::atomic<std::uint32_t>& word, FutexScope scope) noexcept {
  (void)::syscall(SYS_futex, &word, operation(FUTEX_WAKE, scope), std::numeric_limits<int>::max(),
                  nullptr, nullptr, 0);
}

}  // namespace paceline::net
