// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/wakeup.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "paceline/net/system_error.h"

namespace paceline::net {

Wakeup::Wakeup() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!fd_) throw_errno("making an event descriptor");
}

void Wakeup::wake() noexcept {
  const std::uint64_t one = 1;
  while (::write(fd_.raw(), &one, sizeof one) < 0 && errno == EINTR) {
  }  // EAGAIN: the counter is full, so it is readable anyway
}

bool Wakeup::drain() noexcept {
  std::uint64_t count = 0;
  ssize_t got = 0;
  do {
    got = ::read(fd_.raw(), &count, sizeof count);
  } while (got < 0 && errno == EINTR);
  return got > 0;
}

}  // namespace paceline::net
